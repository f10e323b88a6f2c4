#include "host/core/server_options.h"

#include "host/core/observe/latency_metrics.h"

namespace nereid::core {
namespace {

Status CheckMetricsConfig(const ServerOptions& options) {
  for (const auto& [name, settings] : options.metrics_config) {
    for (const auto& [key, value] : settings) {
      if (key == "summary_quantiles") {
        NEREID_RETURN_IF_ERROR(ParseQuantiles(value).status());
        continue;
      }
      if (key != "counter_latencies" && key != "histogram_latencies" &&
          key != "summary_latencies") {
        return UnsupportedError("metrics config '", key, "': expected counter_latencies, ",
                                "histogram_latencies, summary_latencies or summary_quantiles");
      }
      if (value == "true" || value == "false") continue;
      return InvalidArgError("metrics config '", key, "': expected true or false, got '", value,
                             "'");
    }
  }
  return Status::Ok();
}

}  // namespace

Status CheckSupported(const ServerOptions& options) {
  if (options.cache_configs.size() > 1) {
    return InvalidArgError(
        "found multiple cache configurations, but only a single cache is currently supported: '",
        options.cache_configs.begin()->first, "' and '", options.cache_configs.rbegin()->first,
        "'");
  }
  return CheckMetricsConfig(options);
}

}  // namespace nereid::core
