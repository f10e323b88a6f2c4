// Reads which outputs a request asks for, and refuses those that no response would have. [instance
// thread]
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/llm_core/adapter/batch_inputs.h"
#include "backends/llm_core/adapter/client_request.h"
#include "nereid/backend.h"

namespace nereid::llm {

// Refuses an output that is never set, for which a client that names it would wait in vain. A
// client that names no output gets all of the model's `num_outputs`.
Status RefuseOutputs(const Request& request, size_t num_outputs);
// Whether the numbers of tokens are sent: if asked for, or if the model has no input for that.
Status ReadCountRequests(BatchInputs& inputs, const RequestDefaults& defaults,
                         ClientRequest& request);
// Logits, log probabilities of the prompt and the item's other extra outputs, once its parameters
// of sampling are read. INVALID_ARG names the input, and an output that the model does not declare.
Status ReadRequestedOutputs(BatchInputs& inputs, int64_t row, const RequestDefaults& defaults,
                            RequestItem& out);

}  // namespace nereid::llm
