// The custom metrics that one worker created, by the keys under which the worker knows them. They
// are deleted with the worker. [worker thread]
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nereid/metric.h"
#include "nereid/status.h"

namespace nereid::python {

class MetricTable {
 public:
  // Returns the new family's key. INVALID_ARG if `kind` is no TRITONSERVER_MetricKind.
  Result<int64_t> NewFamily(int64_t kind, const std::string& name, const std::string& description) {
    if (kind < TRITONSERVER_METRIC_KIND_COUNTER || kind > TRITONSERVER_METRIC_KIND_HISTOGRAM) {
      return InvalidArgError("metric family '", name, "': unknown kind ", kind);
    }
    NEREID_ASSIGN_OR_RETURN(MetricFamily family,
                            MetricFamily::Create(static_cast<TRITONSERVER_MetricKind>(kind),
                                                 name.c_str(), description.c_str()));
    families_.emplace(next_key_, std::make_shared<MetricFamily>(std::move(family)));
    return next_key_++;
  }

  // Returns the new metric's key. `buckets` is null unless the metric is a histogram. NOT_FOUND if
  // the family was deleted.
  Result<int64_t> New(int64_t family, const MetricFamily::Labels& labels,
                      const std::vector<double>* buckets) {
    const auto it = families_.find(family);
    if (it == families_.end()) return NotFoundError("metric family ", family, " was deleted");
    NEREID_ASSIGN_OR_RETURN(Metric metric, buckets == nullptr
                                               ? it->second->New(labels)
                                               : it->second->NewHistogram(labels, *buckets));
    metrics_.emplace(next_key_, new Entry{it->second, std::move(metric)});
    return next_key_++;
  }

  // NOT_FOUND if the metric was deleted.
  Result<Metric*> Find(int64_t metric) {
    const auto it = metrics_.find(metric);
    if (it == metrics_.end()) return NotFoundError("metric ", metric, " was deleted");
    return &it->second->metric;
  }

  void Delete(int64_t metric) { metrics_.erase(metric); }
  // The family itself ends after its last metric.
  void DeleteFamily(int64_t family) { families_.erase(family); }

 private:
  struct Entry {
    std::shared_ptr<MetricFamily> family;  // destroyed after the metric
    Metric metric;
  };
  int64_t next_key_ = 1;
  std::unordered_map<int64_t, std::shared_ptr<MetricFamily>> families_;
  std::unordered_map<int64_t, std::unique_ptr<Entry>> metrics_;
};

}  // namespace nereid::python
