// A request that fills the place of a sequence without work in the batch of a direct sequence
// model: inputs of the same shapes as another request's, all zero. Nobody sees its answer, no
// statistics count it. [instance thread]
#pragma once

#include "host/core/request/infer_request.h"

namespace nereid {

// Deletes itself when the backend releases it. `like` must be prepared.
InferRequest* NewNullRequest(const InferRequest& like);

}  // namespace nereid
