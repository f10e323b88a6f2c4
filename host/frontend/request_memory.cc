// See request_memory.h.
#include "host/frontend/request_memory.h"

#include <utility>

namespace nereid {

RequestMemory::RequestMemory(size_t max_bytes)
    : budget_(max_bytes),
      used_bytes_(MakeMetric(TRITONSERVER_METRIC_KIND_GAUGE, "nereid_request_memory_used_bytes",
                             "Memory of the bodies and messages of requests in flight, in bytes")),
      num_refused_(MakeMetric(TRITONSERVER_METRIC_KIND_COUNTER, "nereid_request_memory_refused",
                              "Number of times that this memory was exhausted for a request")) {}

std::optional<RequestMemory::OwnMetric> RequestMemory::MakeMetric(TRITONSERVER_MetricKind kind,
                                                                  const char* name,
                                                                  const char* description) {
  Result<MetricFamily> family = MetricFamily::Create(kind, name, description);
  if (!family.ok()) return std::nullopt;
  Result<Metric> metric = family->New({});
  if (!metric.ok()) return std::nullopt;
  return OwnMetric{std::move(family).value(), std::move(metric).value()};
}

void RequestMemory::UpdateMetrics() {
  const std::lock_guard lock(mutex_);
  if (used_bytes_) (void)used_bytes_->metric.Set(static_cast<double>(budget_.used_bytes()));
  const uint64_t num_refused = budget_.num_refused();
  if (num_refused_ && num_refused > shown_refused_) {
    (void)num_refused_->metric.Increment(static_cast<double>(num_refused - shown_refused_));
  }
  shown_refused_ = num_refused;
}

}  // namespace nereid
