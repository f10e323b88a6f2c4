// Text in, canonical JSON out: config.pbtxt through protobuf's text format, JSON through the same
// schema. Included by config/*.cc alone. [any thread]
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "host/core/config/fault.h"
#include "host/core/config/json_form.h"
#include "host/core/config/key_index.h"

namespace nereid::config {

inline constexpr size_t kMaxConfigBytes = size_t{8} << 20;

// `file` is named in faults. The result is meaningful when no fault was added.
Json ParsePbtxt(std::string_view text, const std::string& file, const KeyIndex& index,
                Faults* faults);

// `text` is a whole ModelConfig in JSON; missing fields get their defaults.
Json ParseJson(std::string_view text, Faults* faults);

}  // namespace nereid::config
