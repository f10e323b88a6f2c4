// The tensors of the `tensorrt_llm` model: names, types and dims, and what becomes of each input.
// One table serves auto-complete, reading and refusing. [any thread]
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "nereid/backend.h"

namespace nereid::llm_adapter {

enum class InputRule : uint8_t {
  kUsed,            // read by request_reader.cc
  kIgnored,         // accepted: it changes nothing for a decoder
  kRefuseNonEmpty,  // a feature that is not supported: refused by name when it holds anything
  kRefuseTrue,      // ... when it is true
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

// Adds all of them to a configuration that names no inputs, or no outputs.
Status CompleteTensors(ConfigDraft& draft);

}  // namespace nereid::llm_adapter
