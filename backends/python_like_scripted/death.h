// What is said of a worker that ended: Triton's words, which scripts look for, and then how.
#pragma once

#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::scripted {

// `how`: "exited with code 3".
std::string DeathText(std::string_view instance, std::string_view how);
Status WorkerLost(std::string_view instance, std::string_view how);
// The same, as the error of a request.
Status RequestLost(std::string_view instance, std::string_view how);

}  // namespace nereid::scripted
