// How clients name a model version in a request. Called by every frontend. [any thread]
#pragma once

#include <cstdint>
#include <string_view>

#include "nereid/status.h"

namespace nereid {

// "" is -1, the version that the model's policy chooses; otherwise a decimal number from 1 up.
Result<int64_t> ParseModelVersion(std::string_view text);

}  // namespace nereid
