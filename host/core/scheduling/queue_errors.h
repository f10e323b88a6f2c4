// How a queue answers requests that no instance will see. [any thread]
#pragma once

#include "host/core/request/infer_request.h"

namespace nereid {

// Each of them answers `request` and gives it back: no queue may hold it, no lock be held.
inline void FailCancelled(InferRequest* request) {
  request->Fail(CancelledError(request->LogPrefix(), "request to model '",
                               request->plan().model_name, "' was cancelled while it was queued"),
                FailureReason::kCanceled);
}
inline void FailTimedOut(InferRequest* request) {
  request->Fail(UnavailableError("Request timeout expired"), FailureReason::kRejected);
}

// What Enqueue returns once the scheduler was stopped.
inline Status StoppedError(const InferRequest& request) {
  return UnavailableError(request.LogPrefix(), "model '", request.plan().model_name,
                          "' is being unloaded");
}

}  // namespace nereid
