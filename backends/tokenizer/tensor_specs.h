// The tensors of the two modes, by the names of inflight_batcher_llm repositories of all
// generations, and the check that a configuration asks for no others. [load thread]
#pragma once

#include <span>

#include "nereid/model_config.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

enum class Mode { kPreprocessing, kPostprocessing };

const char* NameOf(Mode mode);

// What `config` is for: its parameter `mode` or, where it has none, its inputs.
Result<Mode> ModeOf(const ModelConfig& config);

// Adds inputs where the draft has none, and outputs where it has none.
Status CompleteTensors(Mode mode, ConfigDraft& draft);

// INVALID_ARG names a tensor that the mode does not have, or has with another type.
Status CheckTensors(Mode mode, const ModelConfig& config);

// Image and video tensors of multimodal repositories: accepted in a configuration as long as no
// request brings one.
std::span<const char* const> MultimodalInputs();

}  // namespace nereid::tokenizer
