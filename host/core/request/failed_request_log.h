// Logs the requests of clients that failed. [any thread]
#pragma once

#include <string_view>

#include "nereid/status.h"

namespace nereid::core {

// One line with the model, the request's id and the reason, at most ten lines a second in the whole
// process: the next line says how many were left out. A cancelled request has not failed.
void LogFailedRequest(std::string_view model, std::string_view request_id, const Status& error);

}  // namespace nereid::core
