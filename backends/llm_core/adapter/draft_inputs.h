// Reads what a request says about its draft tokens: those that a client sends, and the sizes of
// lookahead decoding. [instance thread]
#pragma once

#include <cstdint>
#include <optional>

#include "backends/llm_core/adapter/batch_inputs.h"
#include "backends/llm_core/engine/request.h"
#include "backends/llm_core/speculation/lookahead_sizes.h"
#include "nereid/backend.h"

namespace nereid::llm {

// Also reads the request parameter `speculative_decoding`. INVALID_ARG names the tensor or
// parameter. The engine checks that the numbers of ids and logits fit together.
Status ReadDraftInputs(const Request& request, BatchInputs& inputs, int64_t row,
                       GenerationRequest& generation);

// The sizes of lookahead decoding that a request asks for; those that it leaves open are the
// model's. `of_model` is absent for a model with another drafter or none. INVALID_ARG names the
// tensor.
Result<std::optional<LookaheadSizes>> ReadLookahead(BatchInputs& inputs, int64_t row,
                                                    const std::optional<LookaheadSizes>& of_model);

}  // namespace nereid::llm
