// A tree as compact JSON, as its own dump() has it, for a fifth of the work. Included by
// config/*.cc alone. [any thread]
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "host/core/config/json_form.h"

namespace nereid::config {

// Bytes that are no UTF-8 become U+FFFD.
std::string CompactText(const Json& json);

}  // namespace nereid::config
