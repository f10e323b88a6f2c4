// The tensors of the two modes, named as in inflight_batcher_llm model repositories of all
// generations, and the check that a configuration declares no others. [load thread]
#pragma once

#include <span>

#include "nereid/model_config.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

enum class BackendMode { kPreprocessing, kPostprocessing };

const char* ModeName(BackendMode mode);

// Returns the parameter `mode`. Without it the mode follows from the configured inputs. INVALID_ARG
// if neither determines it.
Result<BackendMode> ReadMode(const ModelConfig& config);

// Adds the mode's inputs if the draft has no inputs, and its outputs if the draft has no outputs.
Status CompleteTensors(BackendMode mode, ConfigDraft& draft);

// INVALID_ARG names a tensor that the mode does not support, a wrong data type or a missing
// required input.
Status CheckTensors(BackendMode mode, const ModelConfig& config);

// Returns the image and video inputs of multimodal repositories. A configuration may declare them,
// but requests that contain one are refused.
std::span<const char* const> MultimodalInputs();

}  // namespace nereid::tokenizer
