// Reads a LoRA adapter from a folder in PEFT's format: adapter_config.json and
// adapter_model.safetensors. The files are untrusted. [any thread]
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "backends/llm_core/checkpoint/safetensors.h"
#include "backends/llm_core/lora/lora_adapter.h"
#include "backends/llm_core/lora/lora_targets.h"
#include "nereid/status.h"

namespace nereid::llm {

inline constexpr char kPeftConfigFile[] = "adapter_config.json";
inline constexpr char kPeftWeightsFile[] = "adapter_model.safetensors";

// Every message names the adapter. UNSUPPORTED: a feature of PEFT that changes more than linear
// modules, by its name. INVALID_ARG: a tensor or a module that does not fit the model, with both
// shapes; a rank above `max_rank`; a number that is not finite. NOT_FOUND: a missing file.
Result<std::shared_ptr<const LoraAdapter>> ReadPeftAdapter(const std::string& name,
                                                           const std::string& folder,
                                                           const LoraTargets& targets,
                                                           int32_t max_rank);

// The same from the contents of the files, without the names of adapter and folder in messages.
// Copies the weights.
Result<std::shared_ptr<const LoraAdapter>> MakePeftAdapter(const std::string& name,
                                                           std::string_view config_json,
                                                           const TensorMap& tensors,
                                                           const LoraTargets& targets,
                                                           int32_t max_rank);

}  // namespace nereid::llm
