// The --trace-* flags. [main thread]
#pragma once

#include <string>

#include "host/options.h"

namespace nereid {

// "<mode>,<setting>=<value>" or "<setting>=<value>".
Status ApplyTraceConfig(Options& options, const std::string& text);

// What OpenTelemetry's variables (OTEL_BSP_*, OTEL_EXPORTER_OTLP_*) say and no flag did, in mode
// opentelemetry.
Status ApplyTraceEnvironment(TraceOptions& options);

// What only makes sense together.
Status CheckTraceOptions(const TraceOptions& options);

}  // namespace nereid
