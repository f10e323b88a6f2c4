#include "caches/local/cache_metrics.h"

#include <iterator>

#include "nereid/error.h"

namespace nereid::local_cache {
namespace {

// In the order of MetricIndex. All are gauges, as in Triton.
constexpr struct {
  const char* name;
  const char* help;
} kGauges[] = {
    {"nv_cache_util", "Cache utilization [0.0 - 1.0]"},
    {"nv_cache_num_entries", "Number of responses stored in response cache"},
    {"nv_cache_num_hits", "Number of cache hits in response cache"},
    {"nv_cache_num_misses", "Number of cache misses in response cache"},
    {"nv_cache_num_lookups", "Number of cache lookups in response cache"},
    {"nv_cache_num_evictions", "Number of cache evictions in response cache"},
    {"nv_cache_lookup_duration", "Total cache lookup duration (hit and miss), in microseconds"},
    {"nv_cache_insertion_duration", "Total cache insertion duration, in microseconds"},
};

// A metric that cannot be set does not fail a cache operation.
void DropError(TRITONSERVER_Error* error) {
  (void)ToStatus(error);
}

double ToUs(uint64_t ns) {
  return static_cast<double>(ns / 1000);  // NOLINT: whole microseconds
}

}  // namespace

CacheMetrics::CacheMetrics() {
  static_assert(std::size(kGauges) == kNumMetrics);
  for (size_t i = 0; i < kNumMetrics; ++i) {
    Gauge& gauge = gauges_[i];
    DropError(TRITONSERVER_MetricFamilyNew(&gauge.family, TRITONSERVER_METRIC_KIND_GAUGE,
                                           kGauges[i].name, kGauges[i].help));
    if (gauge.family == nullptr) continue;
    DropError(TRITONSERVER_MetricNew(&gauge.metric, gauge.family, nullptr, 0));
  }
}

CacheMetrics::~CacheMetrics() {
  for (const Gauge& gauge : gauges_) {
    if (gauge.metric != nullptr) DropError(TRITONSERVER_MetricDelete(gauge.metric));
    if (gauge.family != nullptr) DropError(TRITONSERVER_MetricFamilyDelete(gauge.family));
  }
}

void CacheMetrics::Set(MetricIndex index, double value) {
  TRITONSERVER_Metric* const metric = gauges_[index].metric;
  if (metric != nullptr) DropError(TRITONSERVER_MetricSet(metric, value));
}

void CacheMetrics::OnLookup(bool is_hit, uint64_t duration_ns) {
  const uint64_t num_hits = num_hits_ += is_hit ? 1 : 0;
  const uint64_t num_misses = num_misses_ += is_hit ? 0 : 1;
  Set(is_hit ? kHits : kMisses, static_cast<double>(is_hit ? num_hits : num_misses));
  Set(kLookups, static_cast<double>(num_hits + num_misses));
  Set(kLookupUs, ToUs(lookup_ns_ += duration_ns));
}

void CacheMetrics::OnInsertion(uint64_t duration_ns) {
  Set(kInsertionUs, ToUs(insertion_ns_ += duration_ns));
}

void CacheMetrics::OnChange(double utilization, size_t num_entries, uint64_t num_evictions) {
  Set(kUtilization, utilization);
  Set(kEntries, static_cast<double>(num_entries));
  Set(kEvictions, static_cast<double>(num_evictions));
}

}  // namespace nereid::local_cache
