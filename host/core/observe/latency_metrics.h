// Distributions of a model version's latencies. They are recorded only if --metrics-config enables
// them: a histogram of the time to the first response of decoupled models, and summaries (quantiles
// over the last minute) of all durations that the counters add up. [any thread]
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nereid/status.h"

namespace prometheus {
struct ClientMetric;
enum class MetricType;
}  // namespace prometheus

namespace nereid::core {

struct RequestTimes;

struct LatencyOptions {
  using Quantiles = std::vector<std::pair<double, double>>;  // quantile, tolerated error
  bool histograms = false;
  bool summaries = false;
  Quantiles quantiles = {{0.5, 0.05}, {0.9, 0.01}, {0.95, 0.001}, {0.99, 0.001}, {0.999, 0.001}};
};

// Parses "0.5:0.05,0.9:0.01". INVALID_ARG names the part that is no pair of numbers from 0 to 1.
Result<LatencyOptions::Quantiles> ParseQuantiles(const std::string& text);

class LatencyMetrics {
 public:
  static constexpr char kFirstResponse[] = "nv_inference_first_response_histogram_ms";

  // `buckets_ms`: upper bounds of the histogram; empty if the model has no histogram. `cached`: the
  // model uses the response cache, so cache hits and misses are recorded, too.
  LatencyMetrics(const LatencyOptions& options, const std::vector<double>& buckets_ms, bool cached);
  ~LatencyMetrics();
  LatencyMetrics(const LatencyMetrics&) = delete;
  LatencyMetrics& operator=(const LatencyMetrics&) = delete;

  void RecordSuccess(const RequestTimes& times);
  void RecordCacheHit(uint64_t request_ns, uint64_t lookup_ns);
  void RecordCacheMiss(uint64_t duration_ns);
  void RecordFirstResponse(uint64_t duration_ns);
  bool has_first_response() const;

  // Called for each metric family in which this model has a value. The value has no labels yet.
  using Visitor = std::function<void(const char* name, const char* help,
                                     prometheus::MetricType type, prometheus::ClientMetric value)>;
  void Visit(const Visitor& visitor) const;

 private:
  struct Recorders;
  const std::unique_ptr<Recorders> recorders_;
};

}  // namespace nereid::core
