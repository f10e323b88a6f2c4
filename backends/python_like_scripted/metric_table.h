// The metrics of one worker, by the numbers under which it knows them. A worker that dies takes
// them off the page. [the worker's thread]
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "nereid/metric.h"
#include "nereid/status.h"

namespace nereid::scripted {

class MetricTable {
 public:
  Result<int64_t> NewFamily(int64_t kind, const std::string& name, const std::string& description);
  // `buckets`: null for a metric without.
  Result<int64_t> New(int64_t family, const MetricFamily::Labels& labels,
                      const std::vector<double>* buckets);
  // NOT_FOUND when it was deleted.
  Result<Metric*> Find(int64_t metric);
  void Delete(int64_t metric) { metrics_.erase(metric); }
  // Its metrics keep it.
  void DeleteFamily(int64_t family) { families_.erase(family); }

 private:
  struct Entry {
    std::shared_ptr<MetricFamily> family;  // dies after the metric
    Metric metric;
  };
  int64_t next_key_ = 1;
  std::unordered_map<int64_t, std::shared_ptr<MetricFamily>> families_;
  std::unordered_map<int64_t, std::unique_ptr<Entry>> metrics_;
};

}  // namespace nereid::scripted
