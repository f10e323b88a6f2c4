// Reads what guides the text of an output: its grammar, and the budget of its reasoning. [instance
// thread]
#pragma once

#include <cstdint>

#include "backends/llm_core/adapter/batch_inputs.h"
#include "backends/llm_core/adapter/client_request.h"
#include "nereid/backend.h"

namespace nereid::llm {

// The tensors of one item. INVALID_ARG or UNSUPPORTED names the tensor and both values.
Status ReadGuide(BatchInputs& inputs, int64_t row, RequestItem& out);
// A guide that a request parameter names, for all items.
Status ReadGuideParameters(const Request& request, ClientRequest& result);

}  // namespace nereid::llm
