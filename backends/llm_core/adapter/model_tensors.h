// The tensors that a configuration of the `tensorrt_llm` model declares, by the table of
// backends/llm_tables. [load thread]
#pragma once

#include "nereid/backend.h"

namespace nereid::llm {

// Adds the inputs to a configuration that names none, and likewise the outputs.
Status CompleteTensors(ConfigDraft& draft);

// INVALID_ARG for a tensor that no release and no extension has, for one of another data type or
// other dims, and for a missing input without which every request would fail.
Status CheckTensors(const ModelConfig& config);

}  // namespace nereid::llm
