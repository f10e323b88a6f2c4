// The cache's metrics on the metrics page, under Triton's names. If the server has no metrics, all
// functions do nothing. [any thread]
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "triton/core/tritonserver.h"

namespace nereid::local_cache {

class CacheMetrics {
 public:
  CacheMetrics();
  ~CacheMetrics();
  CacheMetrics(const CacheMetrics&) = delete;
  CacheMetrics& operator=(const CacheMetrics&) = delete;

  void OnLookup(bool is_hit, uint64_t duration_ns);
  void OnInsertion(uint64_t duration_ns);
  // The state of the cache after a change.
  void OnChange(double utilization, size_t num_entries, uint64_t num_evictions);

 private:
  enum MetricIndex {
    kUtilization,
    kEntries,
    kHits,
    kMisses,
    kLookups,
    kEvictions,
    kLookupUs,
    kInsertionUs,
    kNumMetrics
  };
  struct Gauge {
    TRITONSERVER_MetricFamily* family = nullptr;
    TRITONSERVER_Metric* metric = nullptr;
  };

  void Set(MetricIndex index, double value);

  std::array<Gauge, kNumMetrics> gauges_;
  std::atomic<uint64_t> num_hits_{0}, num_misses_{0}, lookup_ns_{0}, insertion_ns_{0};
};

}  // namespace nereid::local_cache
