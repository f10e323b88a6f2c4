// Reads the draft tokens that a client sends with its request. [instance thread]
#pragma once

#include <cstdint>

#include "backends/llm_core/adapter/batch_inputs.h"
#include "backends/llm_core/engine/request.h"
#include "nereid/backend.h"

namespace nereid::llm {

// Also reads the request parameter `speculative_decoding`. INVALID_ARG names the tensor or
// parameter. The engine checks that the numbers of ids and logits fit together.
Status ReadDraftInputs(const Request& request, BatchInputs& inputs, int64_t row,
                       GenerationRequest& generation);

}  // namespace nereid::llm
