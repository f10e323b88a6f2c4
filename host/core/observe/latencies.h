// How the latencies of a model version are distributed: kept only where --metrics-config asks for
// it. Histograms of the time to the first response of decoupled models, summaries (quantiles of the
// last minute) of everything that the counters add up. [any thread]
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

namespace nereid {

struct RequestTimes;

struct LatencyOptions {
  using Quantiles = std::vector<std::pair<double, double>>;  // quantile, tolerated error
  bool histograms = false;
  bool summaries = false;
  Quantiles quantiles = {{0.5, 0.05}, {0.9, 0.01}, {0.95, 0.001}, {0.99, 0.001}, {0.999, 0.001}};
};

// "0.5:0.05,0.9:0.01". INVALID_ARG names what is no such pair between 0 and 1.
Result<LatencyOptions::Quantiles> ReadQuantiles(const std::string& text);

class Latencies {
 public:
  static constexpr char kFirstResponse[] = "nv_inference_first_response_histogram_ms";

  // `buckets_ms`: upper bounds of the histogram; empty: the model has none.
  Latencies(const LatencyOptions& options, const std::vector<double>& buckets_ms, bool cached);
  ~Latencies();
  Latencies(const Latencies&) = delete;
  Latencies& operator=(const Latencies&) = delete;

  void RecordSuccess(const RequestTimes& times);
  void RecordCacheHit(uint64_t request_ns, uint64_t lookup_ns);
  void RecordCacheMiss(uint64_t duration_ns);
  void RecordFirstResponse(uint64_t duration_ns);
  bool has_first_response() const;

  // Called with each family that this model has a value of; the value has no labels yet.
  using Visitor = std::function<void(const char* name, const char* help,
                                     prometheus::MetricType type, prometheus::ClientMetric value)>;
  void Visit(const Visitor& visitor) const;

 private:
  struct Kept;
  const std::unique_ptr<Kept> kept_;
};

}  // namespace nereid
