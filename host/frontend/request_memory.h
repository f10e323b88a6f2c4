// The memory that requests in flight may occupy, over all ports together, and its metrics. [any
// thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "base/byte_budget.h"
#include "nereid/metric.h"

namespace nereid {

class RequestMemory {
 public:
  // Created after the core and destroyed before it. 0 means that there is no limit.
  explicit RequestMemory(size_t max_bytes);

  // Counts the bodies and messages of all requests. A reservation lives as long as the memory that
  // it stands for, also while a model uses that.
  ByteBudget& budget() { return budget_; }

  // Called before the core's metrics are read.
  void UpdateMetrics();

 private:
  struct OwnMetric {
    MetricFamily family;
    Metric metric;
  };
  static std::optional<OwnMetric> MakeMetric(TRITONSERVER_MetricKind kind, const char* name,
                                             const char* description);

  ByteBudget budget_;
  std::optional<OwnMetric> used_bytes_;  // both: none if the core has no metrics
  std::optional<OwnMetric> num_refused_;
  std::mutex mutex_;            // guards the member below and the updates
  uint64_t shown_refused_ = 0;  // value of num_refused_
};

}  // namespace nereid
