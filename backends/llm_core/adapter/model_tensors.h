// The tensors of the `tensorrt_llm` model: names, data types, dims and the handling of each input.
// The same table serves configuration completion, reading and rejection. [any thread]
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "nereid/backend.h"

namespace nereid::llm {

enum class InputRule : uint8_t {
  kUsed,            // read by request_reader.cc
  kIgnored,         // accepted, without effect for a decoder
  kRefuseNonEmpty,  // unsupported feature: rejected unless empty
  kRefuseTrue,      // unsupported feature: rejected if true
};

struct InputTensor {
  std::string_view name;
  DataType datatype;
  std::vector<int64_t> dims;
  InputRule rule;
  bool is_optional = true;
};

struct OutputTensor {
  const char* name;
  DataType datatype;
  std::vector<int64_t> dims;
};

const std::vector<InputTensor>& InputTensors();
const std::vector<OutputTensor>& OutputTensors();

// Adds the inputs to a configuration that names none, and likewise the outputs.
Status CompleteTensors(ConfigDraft& draft);

}  // namespace nereid::llm
