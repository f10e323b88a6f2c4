// The JSON by which a client changes what is logged and what is traced. [any thread]
#pragma once

#include <cstddef>
#include <string_view>

#include "host/frontend/log_settings.h"
#include "host/frontend/tracing/trace_settings.h"
#include "nereid/status.h"

namespace nereid::http {

// Known members alone: a misspelt one would change nothing, silently.
Result<LogChange> ReadLogChange(std::string_view body, size_t max_depth);
// The level is a list, the others are texts; null clears. Whether a setting exists is not asked.
Result<TraceChange> ReadTraceChange(std::string_view body, size_t max_depth);

}  // namespace nereid::http
