// The --trace-* flags. [main thread]
#pragma once

#include <string>

#include "host/options.h"

namespace nereid {

// "<mode>,<setting>=<value>" or "<setting>=<value>".
Status ApplyTraceConfig(Options& options, const std::string& text);

// What only makes sense together.
Status CheckTraceOptions(const TraceOptions& options);

}  // namespace nereid
