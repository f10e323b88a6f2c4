// Metrics that backends and embedders register: TRITONSERVER_MetricFamily, Metric and MetricArgs.
// Families of one name share one set of metrics; metrics of the same labels share one value. The
// registry is process-wide, because the C functions name no server. [any thread]
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host/core/handle/handle_cast.h"
#include "nereid/status.h"
#include "triton/core/tritonserver.h"

namespace prometheus {
struct MetricFamily;
}

namespace nereid {

using MetricLabels = std::map<std::string, std::string>;

// TRITONSERVER_MetricArgs.
struct CustomMetricArgs {
  std::optional<std::vector<double>> buckets;  // upper bounds of a histogram, ascending; or none
};

// The value of a metric: shared by all handles with the same labels.
struct CustomValue {
  std::atomic<double> value{0};               // counter, gauge; sum of a histogram
  std::vector<double> bounds;                 // histogram
  std::vector<std::atomic<uint64_t>> counts;  // one more than bounds
};

// A family as the page shows it: shared by all handles of the same name.
struct SharedFamily {
  std::string name;
  std::string description;
  TRITONSERVER_MetricKind kind;
  std::mutex mutex;  // guards values
  std::map<MetricLabels, std::weak_ptr<CustomValue>> values;
};

// TRITONSERVER_MetricFamily.
class CustomMetricFamily {
 public:
  // INVALID_ARG for a bad name or one that already has another kind.
  static Result<std::unique_ptr<CustomMetricFamily>> New(TRITONSERVER_MetricKind kind,
                                                         const std::string& name,
                                                         const std::string& description);

  SharedFamily& shared() { return *shared_; }
  TRITONSERVER_MetricKind kind() const { return shared_->kind; }
  std::atomic<size_t>& num_metrics() { return num_metrics_; }

 private:
  explicit CustomMetricFamily(std::shared_ptr<SharedFamily> shared) : shared_(std::move(shared)) {}

  const std::shared_ptr<SharedFamily> shared_;
  std::atomic<size_t> num_metrics_{0};
};

// TRITONSERVER_Metric.
class CustomMetric {
 public:
  // `family` must outlive the metric. `args` is needed by histograms alone.
  static Result<std::unique_ptr<CustomMetric>> New(CustomMetricFamily* family,
                                                   const MetricLabels& labels,
                                                   const CustomMetricArgs* args);
  ~CustomMetric();

  TRITONSERVER_MetricKind kind() const { return family_->kind(); }
  Result<double> Value() const;
  Status Increment(double value);
  Status Set(double value);
  Status Observe(double value);

 private:
  CustomMetric(CustomMetricFamily* family, std::shared_ptr<CustomValue> value);

  CustomMetricFamily* const family_;
  const std::shared_ptr<CustomValue> value_;
};

// What the metrics page shows of them.
void CollectCustomMetrics(std::vector<prometheus::MetricFamily>* page);

}  // namespace nereid

NEREID_HANDLE(TRITONSERVER_MetricFamily, nereid::CustomMetricFamily);
NEREID_HANDLE(TRITONSERVER_Metric, nereid::CustomMetric);
NEREID_HANDLE(TRITONSERVER_MetricArgs, nereid::CustomMetricArgs);
