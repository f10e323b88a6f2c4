// What the cache tells on the metrics page, under Triton's names. A server without metrics has
// none: then nothing is told. [any thread]
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
  // What the cache holds now.
  void OnChange(double utilization, size_t num_entries, uint64_t num_evictions);

 private:
  enum Figure {
    kUtilization,
    kEntries,
    kHits,
    kMisses,
    kLookups,
    kEvictions,
    kLookupUs,
    kInsertionUs,
    kNumFigures
  };
  struct Gauge {
    TRITONSERVER_MetricFamily* family = nullptr;
    TRITONSERVER_Metric* metric = nullptr;
  };

  void Set(Figure figure, double value);

  std::array<Gauge, kNumFigures> gauges_;
  std::atomic<uint64_t> num_hits_{0}, num_misses_{0}, lookup_ns_{0}, insertion_ns_{0};
};

}  // namespace nereid::local_cache
