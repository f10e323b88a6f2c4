// The table of command-line flags, and the functions behind flags that also have environment
// variables: those of the cloud platforms and of OpenTelemetry. [main thread]
#pragma once

#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "host/options.h"
#include "nereid/status.h"

namespace nereid {

struct Flag {
  std::string_view section;  // section of the help text
  std::string_view name;     // including the dashes
  // Placeholder in the help text. Empty: the flag takes no value; "[=...]": the value is optional.
  std::string_view value;
  std::string_view help;
  Status (*apply)(Options& options, const std::string& value);
};

std::span<const Flag> CoreFlags();
std::span<const Flag> FrontendFlags();

// Returns the value of an environment variable, or an empty text if it is not set.
inline std::string EnvironmentValue(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// ---- SageMaker and Vertex AI ports (cloud_flags.cc)

// Applies the platforms' environment variables as defaults, before flags are parsed.
// AIP_MODE=PREDICTION enables Vertex AI and disables HTTP and gRPC.
Status ApplyCloudEnvironment(Options& options);

// Parses "<first>-<last>".
Status ApplySafePortRange(Options& options, const std::string& text);

// Sets options that no flag has set, after flags are parsed.
void CompleteCloudOptions(Options& options);

Status CheckCloudOptions(const Options& options);

// ---- traces (trace_flags.cc)

// Parses "<mode>,<setting>=<value>" or "<setting>=<value>".
Status ApplyTraceConfig(Options& options, const std::string& text);

// In mode opentelemetry, applies OpenTelemetry's variables (OTEL_BSP_*, OTEL_EXPORTER_OTLP_*) to
// settings that no flag has set.
Status ApplyTraceEnvironment(TraceOptions& options);

// Checks rules that involve several settings.
Status CheckTraceOptions(const TraceOptions& options);

}  // namespace nereid
