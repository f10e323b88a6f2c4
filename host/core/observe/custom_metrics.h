// Metrics that backends and applications register through the C API: TRITONSERVER_MetricFamily,
// TRITONSERVER_Metric and TRITONSERVER_MetricArgs. Families with the same name share one set of
// metrics; metrics with the same labels share one value. The registry is process-wide, because the
// C functions take no server. [any thread]
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

namespace nereid::core {

using MetricLabels = std::map<std::string, std::string>;

// TRITONSERVER_MetricArgs.
struct CustomMetricArgs {
  std::optional<std::vector<double>> buckets;  // upper bounds of a histogram, ascending
};

// The value of a metric, shared by all handles with the same labels.
struct CustomMetricValue {
  std::atomic<double> value{0};               // of a counter or gauge; the sum of a histogram
  std::vector<double> bounds;                 // upper bounds of a histogram
  std::vector<std::atomic<uint64_t>> counts;  // per bucket; one more than bounds
};

// A family as the metrics page shows it, shared by all handles with the same name.
struct SharedMetricFamily {
  std::string name;
  std::string description;
  TRITONSERVER_MetricKind kind;
  std::mutex mutex;  // guards values
  std::map<MetricLabels, std::weak_ptr<CustomMetricValue>> values;
};

// TRITONSERVER_MetricFamily.
class CustomMetricFamily {
 public:
  // INVALID_ARG if the name is invalid or already has another kind.
  static Result<std::unique_ptr<CustomMetricFamily>> New(TRITONSERVER_MetricKind kind,
                                                         const std::string& name,
                                                         const std::string& description);

  SharedMetricFamily& shared() { return *shared_; }
  TRITONSERVER_MetricKind kind() const { return shared_->kind; }
  std::atomic<size_t>& num_metrics() { return num_metrics_; }

 private:
  explicit CustomMetricFamily(std::shared_ptr<SharedMetricFamily> shared)
      : shared_(std::move(shared)) {}

  const std::shared_ptr<SharedMetricFamily> shared_;
  std::atomic<size_t> num_metrics_{0};
};

// TRITONSERVER_Metric.
class CustomMetric {
 public:
  // `family` must outlive the metric. `args` is required for histograms and must be null otherwise.
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
  CustomMetric(CustomMetricFamily* family, std::shared_ptr<CustomMetricValue> value);

  CustomMetricFamily* const family_;
  const std::shared_ptr<CustomMetricValue> value_;
};

// Adds all custom metrics to the metrics page.
void CollectCustomMetrics(std::vector<prometheus::MetricFamily>* page);

}  // namespace nereid::core

NEREID_HANDLE(TRITONSERVER_MetricFamily, nereid::core::CustomMetricFamily);
NEREID_HANDLE(TRITONSERVER_Metric, nereid::core::CustomMetric);
NEREID_HANDLE(TRITONSERVER_MetricArgs, nereid::core::CustomMetricArgs);
