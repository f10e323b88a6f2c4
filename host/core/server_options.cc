#include "server_options.h"

namespace nereid {
namespace {

Status CheckMetricsConfig(const ServerOptions& options) {
  for (const auto& [name, settings] : options.metrics_config) {
    for (const auto& [key, value] : settings) {
      if (key == "counter_latencies" && (value == "true" || value == "false")) continue;
      if (value == "false" && (key == "histogram_latencies" || key == "summary_latencies")) {
        continue;
      }
      return UnsupportedError("metrics config '", key, "=", value,
                              "': expected counter_latencies=true or counter_latencies=false");
    }
  }
  return Status::Ok();
}

}  // namespace

Status CheckSupported(const ServerOptions& options) {
  if (options.cache_configs.size() > 1) {
    return InvalidArgError("cache config: expected one cache, got '",
                           options.cache_configs.begin()->first, "' and '",
                           options.cache_configs.rbegin()->first, "'");
  }
  return CheckMetricsConfig(options);
}

}  // namespace nereid
