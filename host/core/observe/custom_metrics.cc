#include "host/core/observe/custom_metrics.h"

#include <prometheus/check_names.h>
#include <prometheus/metric_family.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace nereid::core {
namespace {

struct Registry {
  std::mutex mutex;  // guards families
  std::map<std::string, std::weak_ptr<SharedMetricFamily>> families;
};

// Never destroyed, because a backend may delete metrics while the process exits.
Registry& TheRegistry() {
  static auto* registry = new Registry;
  return *registry;
}

const char* KindName(TRITONSERVER_MetricKind kind) {
  switch (kind) {
    case TRITONSERVER_METRIC_KIND_COUNTER:
      return "TRITONSERVER_METRIC_KIND_COUNTER";
    case TRITONSERVER_METRIC_KIND_GAUGE:
      return "TRITONSERVER_METRIC_KIND_GAUGE";
    case TRITONSERVER_METRIC_KIND_HISTOGRAM:
      return "TRITONSERVER_METRIC_KIND_HISTOGRAM";
  }
  return "an unknown kind";
}

Status CheckBuckets(const std::string& family, const CustomMetricArgs* args) {
  if (args == nullptr) {
    return InvalidArgError("metric family '", family,
                           "': Bucket boundaries not found in Metric args: a histogram needs them");
  }
  if (!args->buckets.has_value()) {
    return InvalidArgError("metric family '", family,
                           "': Metric args not set to histogram kind: they have no buckets");
  }
  const std::vector<double>& bounds = *args->buckets;
  for (size_t i = 1; i < bounds.size(); ++i) {
    if (!(bounds[i - 1] < bounds[i])) {
      return InvalidArgError("metric family '", family, "': bucket bounds must ascend, but ",
                             bounds[i - 1], " is followed by ", bounds[i]);
    }
  }
  return Status::Ok();
}

prometheus::ClientMetric ReadValue(TRITONSERVER_MetricKind kind, const CustomMetricValue& value) {
  prometheus::ClientMetric metric;
  const double number = value.value.load(std::memory_order_relaxed);
  if (kind == TRITONSERVER_METRIC_KIND_COUNTER) metric.counter.value = number;
  if (kind == TRITONSERVER_METRIC_KIND_GAUGE) metric.gauge.value = number;
  if (kind != TRITONSERVER_METRIC_KIND_HISTOGRAM) return metric;
  metric.histogram.sample_sum = number;
  uint64_t cumulative = 0;
  for (size_t i = 0; i < value.counts.size(); ++i) {
    cumulative += value.counts[i].load(std::memory_order_relaxed);
    const double bound =
        i < value.bounds.size() ? value.bounds[i] : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back({cumulative, bound});
  }
  metric.histogram.sample_count = cumulative;
  return metric;
}

prometheus::MetricType ToPrometheus(TRITONSERVER_MetricKind kind) {
  if (kind == TRITONSERVER_METRIC_KIND_COUNTER) return prometheus::MetricType::Counter;
  if (kind == TRITONSERVER_METRIC_KIND_GAUGE) return prometheus::MetricType::Gauge;
  return prometheus::MetricType::Histogram;
}

// Adds a custom family to the page, on which each name may appear only once. If a family of the
// server has the same name, it gets the metrics if it is of the same kind; otherwise they are left
// out. Families without metrics are left out, too.
void AddTo(prometheus::MetricFamily family, std::vector<prometheus::MetricFamily>* page) {
  if (family.metric.empty()) return;
  const auto same = std::find_if(page->begin(), page->end(),
                                 [&](const auto& other) { return other.name == family.name; });
  if (same == page->end()) return page->push_back(std::move(family));
  if (same->type != family.type) return;
  for (auto& metric : family.metric) same->metric.push_back(std::move(metric));
}

void AddTo(std::atomic<double>* target, double value) {
  double old = target->load(std::memory_order_relaxed);
  while (!target->compare_exchange_weak(old, old + value, std::memory_order_relaxed)) {
  }
}

}  // namespace

Result<std::unique_ptr<CustomMetricFamily>> CustomMetricFamily::New(
    TRITONSERVER_MetricKind kind, const std::string& name, const std::string& description) {
  if (!prometheus::CheckMetricName(name)) {
    return InvalidArgError("metric family '", name, "': not a valid Prometheus metric name");
  }
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mutex);
  std::weak_ptr<SharedMetricFamily>& slot = registry.families[name];
  std::shared_ptr<SharedMetricFamily> shared = slot.lock();
  if (shared == nullptr) {
    shared = std::make_shared<SharedMetricFamily>();
    shared->name = name;
    shared->description = description;
    shared->kind = kind;
    slot = shared;
  } else if (shared->kind != kind) {
    return InvalidArgError("metric family '", name, "' already exists with kind ",
                           KindName(shared->kind), ", got ", KindName(kind));
  }
  return std::unique_ptr<CustomMetricFamily>(new CustomMetricFamily(std::move(shared)));
}

CustomMetric::CustomMetric(CustomMetricFamily* family, std::shared_ptr<CustomMetricValue> value)
    : family_(family), value_(std::move(value)) {
  family_->num_metrics().fetch_add(1);
}

CustomMetric::~CustomMetric() {
  family_->num_metrics().fetch_sub(1);
}

Result<std::unique_ptr<CustomMetric>> CustomMetric::New(CustomMetricFamily* family,
                                                        const MetricLabels& labels,
                                                        const CustomMetricArgs* args) {
  SharedMetricFamily& shared = family->shared();
  const bool is_histogram = shared.kind == TRITONSERVER_METRIC_KIND_HISTOGRAM;
  if (is_histogram) NEREID_RETURN_IF_ERROR(CheckBuckets(shared.name, args));
  if (!is_histogram && args != nullptr) {
    return InvalidArgError("metric family '", shared.name, "': ", KindName(shared.kind),
                           " takes no TRITONSERVER_MetricArgs");
  }
  for (const auto& [label, text] : labels) {
    if (!prometheus::CheckLabelName(label)) {
      return InvalidArgError("metric family '", shared.name, "': '", label,
                             "' is not a valid label name");
    }
  }
  std::lock_guard lock(shared.mutex);
  std::weak_ptr<CustomMetricValue>& slot = shared.values[labels];
  std::shared_ptr<CustomMetricValue> value = slot.lock();
  if (value == nullptr) {
    value = std::make_shared<CustomMetricValue>();
    if (is_histogram) {
      value->bounds = *args->buckets;
      value->counts = std::vector<std::atomic<uint64_t>>(value->bounds.size() + 1);
    }
    slot = value;
  }
  return std::unique_ptr<CustomMetric>(new CustomMetric(family, std::move(value)));
}

Result<double> CustomMetric::Value() const {
  if (kind() == TRITONSERVER_METRIC_KIND_HISTOGRAM) {
    return UnsupportedError("TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value");
  }
  return value_->value.load(std::memory_order_relaxed);
}

Status CustomMetric::Increment(double value) {
  if (kind() == TRITONSERVER_METRIC_KIND_HISTOGRAM) {
    return UnsupportedError("TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Increment");
  }
  if (kind() == TRITONSERVER_METRIC_KIND_COUNTER && !(value >= 0)) {
    return InvalidArgError(
        "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative "
        "values, got ",
        value);
  }
  AddTo(&value_->value, value);
  return Status::Ok();
}

Status CustomMetric::Set(double value) {
  if (kind() != TRITONSERVER_METRIC_KIND_GAUGE) {
    return UnsupportedError(KindName(kind()), " does not support Set");
  }
  value_->value.store(value, std::memory_order_relaxed);
  return Status::Ok();
}

Status CustomMetric::Observe(double value) {
  if (kind() != TRITONSERVER_METRIC_KIND_HISTOGRAM) {
    return UnsupportedError(KindName(kind()), " does not support Observe");
  }
  const auto& bounds = value_->bounds;
  const size_t bucket = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
  value_->counts[bucket].fetch_add(1, std::memory_order_relaxed);
  AddTo(&value_->value, value);
  return Status::Ok();
}

void CollectCustomMetrics(std::vector<prometheus::MetricFamily>* page) {
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mutex);
  for (auto it = registry.families.begin(); it != registry.families.end();) {
    const std::shared_ptr<SharedMetricFamily> family = it->second.lock();
    if (family == nullptr) {
      it = registry.families.erase(it);
      continue;
    }
    ++it;
    prometheus::MetricFamily shown;
    shown.name = family->name;
    shown.help = family->description;
    shown.type = ToPrometheus(family->kind);
    std::lock_guard family_lock(family->mutex);
    for (auto entry = family->values.begin(); entry != family->values.end();) {
      const std::shared_ptr<CustomMetricValue> value = entry->second.lock();
      if (value == nullptr) {
        entry = family->values.erase(entry);
        continue;
      }
      prometheus::ClientMetric metric = ReadValue(family->kind, *value);
      for (const auto& [label, text] : entry->first) metric.label.push_back({label, text});
      shown.metric.push_back(std::move(metric));
      ++entry;
    }
    AddTo(std::move(shown), page);
  }
}

}  // namespace nereid::core
