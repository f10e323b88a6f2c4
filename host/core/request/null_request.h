// A null request: it fills the batch slot of a sequence that has no request waiting, for a model
// with the direct sequence strategy. Its inputs have the shapes of another request's inputs and are
// all zero. Its response is discarded, and statistics do not count it. [instance thread]
#pragma once

#include "host/core/request/infer_request.h"

namespace nereid::core {

// The request has the shapes of `like`, which must be prepared. It deletes itself when the backend
// releases it.
InferRequest* NewNullRequest(const InferRequest& like);

}  // namespace nereid::core
