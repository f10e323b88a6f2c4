// Reads an array of NumPy's .npy format, which is untrusted. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::llm {

struct NpyArray {
  std::string type;            // as NumPy writes it, such as "<f2"
  std::vector<int64_t> shape;  // outermost first
  std::string_view bytes;      // borrowed from the file, row by row; not aligned
  int64_t num_elements = 0;
};

// Arrays of little-endian numbers of 1 to 8 bytes, in C order. INVALID_ARG names `file` and both
// values where the size of the file is not that of the shape.
Result<NpyArray> ParseNpy(std::string_view contents, std::string_view file);

}  // namespace nereid::llm
