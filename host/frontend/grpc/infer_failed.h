// The line of the verbose log about a request that was refused, as Triton has it. [any thread]
#pragma once

#include <string>

#include "host/log.h"
#include "nereid/status.h"

namespace nereid {

inline void LogInferFailed(const std::string& request_id, const Status& status) {
  LogVerbose("[request id: ", request_id.empty() ? "<id_unknown>" : request_id,
             "] Infer failed: ", status.message());
}

}  // namespace nereid
