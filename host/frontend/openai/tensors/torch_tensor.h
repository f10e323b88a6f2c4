// Reads one tensor from a file of torch.save: an archive with a pickle. The file is untrusted. A
// pickle is a program; this reader runs none: it knows the few instructions that describe a plain
// tensor, looks up nothing by name, and refuses every other one. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::openai {

struct TorchTensor {
  std::string storage;         // the class of its storage, such as "HalfStorage"
  std::vector<int64_t> shape;  // outermost first
  std::string_view bytes;      // borrowed from the file: the elements, row by row; not aligned
};

// A contiguous tensor of FloatStorage, HalfStorage or BFloat16Storage. INVALID_ARG says what the
// file is instead.
Result<TorchTensor> ReadTorchTensor(std::string_view file);

// Its elements as floats.
std::vector<float> FloatsOf(const TorchTensor& tensor);

}  // namespace nereid::openai
