// Which outputs the model's configuration has, and of what types. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/backend.h"

namespace nereid::llm_adapter {

struct ConfiguredOutputs {
  explicit ConfiguredOutputs(const ModelConfig& config);
  bool Has(std::string_view name) const;
  // UNSUPPORTED names logits of a type that there is no conversion to.
  Status CheckLogits() const;

  bool is_batching;
  bool is_decoupled;
  // Of a configuration from before release 0.14 of the TensorRT-LLM backend: log probabilities and
  // logits are in every response, as the clients and models of that time expect; zeros, where the
  // request did not ask for them.
  bool has_unasked;
  int32_t vocab_size = 0;  // of the logits
  std::vector<std::string> names;
  // As the configuration has them (logits_datatype): FP32, FP16 or BF16.
  DataType context_logits = DataType::kFp32, generation_logits = DataType::kFp32;
};

}  // namespace nereid::llm_adapter
