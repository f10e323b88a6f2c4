// The outputs in the model's configuration and their data types. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/backend.h"

namespace nereid::llm {

struct ConfiguredOutputs {
  explicit ConfiguredOutputs(const ModelConfig& config);
  bool Has(std::string_view name) const;
  // UNSUPPORTED if logits have a data type to which they cannot be converted.
  Status CheckLogits() const;

  bool is_batching;
  bool is_decoupled;
  // True for a configuration from before release 0.14 of the TensorRT-LLM backend. Log
  // probabilities, logits and batch_index are then in every response, because clients and models
  // of that time expect them. Log probabilities and logits are zero if the request did not ask for
  // them.
  bool fills_unrequested;
  int32_t vocab_size = 0;  // last dim of the logits
  std::vector<std::string> names;
  // Configured data types of the logits (logits_datatype): FP32, FP16 or BF16.
  DataType context_logits = DataType::kFp32, generation_logits = DataType::kFp32;
};

}  // namespace nereid::llm
