// Converts the tensors of a client's request to generation requests for the engine, one for each
// item of the batch. [instance thread]
#pragma once

#include "backends/llm_core/adapter/client_request.h"
#include "nereid/backend.h"

namespace nereid::llm {

// INVALID_ARG or UNSUPPORTED names the tensor, its value and the expected one.
Result<ClientRequest> ReadRequest(Request& request, const RequestDefaults& defaults);

}  // namespace nereid::llm
