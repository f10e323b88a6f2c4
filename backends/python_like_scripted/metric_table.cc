#include "backends/python_like_scripted/metric_table.h"

#include <utility>

namespace nereid::scripted {

Result<int64_t> MetricTable::NewFamily(int64_t kind, const std::string& name,
                                       const std::string& description) {
  if (kind < TRITONSERVER_METRIC_KIND_COUNTER || kind > TRITONSERVER_METRIC_KIND_HISTOGRAM) {
    return InvalidArgError("metric family '", name, "': unknown kind ", kind);
  }
  NEREID_ASSIGN_OR_RETURN(MetricFamily family,
                          MetricFamily::Create(static_cast<TRITONSERVER_MetricKind>(kind),
                                               name.c_str(), description.c_str()));
  families_.emplace(next_key_, std::make_shared<MetricFamily>(std::move(family)));
  return next_key_++;
}

Result<int64_t> MetricTable::New(int64_t family, const MetricFamily::Labels& labels,
                                 const std::vector<double>* buckets) {
  const auto it = families_.find(family);
  if (it == families_.end()) return NotFoundError("metric family ", family, " was deleted");
  NEREID_ASSIGN_OR_RETURN(Metric metric, buckets == nullptr
                                             ? it->second->New(labels)
                                             : it->second->NewHistogram(labels, *buckets));
  metrics_.emplace(next_key_, new Entry{it->second, std::move(metric)});
  return next_key_++;
}

Result<Metric*> MetricTable::Find(int64_t metric) {
  const auto it = metrics_.find(metric);
  if (it == metrics_.end()) return NotFoundError("metric ", metric, " was deleted");
  return &it->second->metric;
}

}  // namespace nereid::scripted
