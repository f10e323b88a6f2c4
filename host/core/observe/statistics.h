// Statistics of a model version: counts and durations. Each instance has its own shard, so that
// instances do not share a cache line on the hot path. Readers add up the shards. [any thread]
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "host/core/observe/latency_metrics.h"

namespace nereid::core {

// Label values of nv_inference_request_failure.
enum class FailureReason { kRejected, kCanceled, kBackend, kOther };
inline constexpr size_t kNumFailureReasons = 4;
const char* FailureReasonName(FailureReason reason);

// Timestamps of one request on the steady clock, in ascending order.
struct RequestTimes {
  uint64_t request_start_ns = 0;  // the host accepted the request
  uint64_t queue_start_ns = 0;
  uint64_t exec_start_ns = 0;     // the request left the queue
  uint64_t compute_start_ns = 0;  // the inputs are ready
  uint64_t compute_end_ns = 0;    // the results are computed
  uint64_t exec_end_ns = 0;       // the outputs are written
  uint64_t request_end_ns = 0;
};

struct CountAndNs {
  uint64_t count = 0;
  uint64_t ns = 0;
};

struct ResponseCounts {
  CountAndNs compute_infer, compute_output, success, fail, empty_response, cancel;
};

struct BatchCounts {
  CountAndNs compute_input, compute_infer, compute_output;
};

// Responses are counted by their index in the stream up to this one, whose counts are the sum of it
// and of all later ones. A stream may have any number of responses.
inline constexpr uint64_t kLastResponseIndex = 100;
// Once there are so many different sizes of large batches, further sizes are counted under the next
// lower power of two. Clients choose the sizes.
inline constexpr size_t kMaxLargeBatchSizes = 256;

// The sum over all shards. Each field is consistent, but different fields may not match each other.
struct StatisticsSnapshot {
  uint64_t last_inference_ms = 0;  // wall clock; 0: never
  uint64_t inference_count = 0;
  uint64_t execution_count = 0;
  CountAndNs success, fail, queue, compute_input, compute_infer, compute_output;
  CountAndNs cache_hit, cache_miss;
  std::array<uint64_t, kNumFailureReasons> failures{};
  std::map<uint64_t, BatchCounts> batches;  // by batch size
  std::vector<ResponseCounts> responses;    // by response index, up to kLastResponseIndex
};

// One response of a decoupled model, as its backend reports it.
struct ResponseTimes {
  uint64_t index = 0;
  uint64_t response_start_ns = 0;
  uint64_t compute_output_start_ns = 0;  // 0: an empty response
  uint64_t response_end_ns = 0;
  enum class Outcome { kSuccess, kFail, kEmpty, kCancel } outcome = Outcome::kSuccess;
};

class StatisticsShard {
 public:
  StatisticsShard() = default;

  void RecordSuccess(const RequestTimes& times, uint64_t batch_size);
  void RecordFailure(FailureReason reason, uint64_t duration_ns);
  // Counts a failure, which any shard of the model has recorded, under another reason.
  void ChangeReason(FailureReason from, FailureReason to);
  // A request that was answered from the cache: it counts as a success, but the model did not
  // execute it. Timestamps of the steady clock.
  void RecordCacheHit(uint64_t request_start_ns, uint64_t lookup_start_ns, uint64_t lookup_end_ns);
  // The time for the unsuccessful lookup and the insertion of the response.
  void RecordCacheMiss(uint64_t duration_ns);
  // One execution of the backend. Only the exec and compute timestamps of `times` are read.
  void RecordExecution(uint64_t batch_size, const RequestTimes& times);
  void RecordResponse(const ResponseTimes& times);

  void AddTo(StatisticsSnapshot* sum) const;
  // `latencies` also gets each recorded duration; null disables that. Must be called before the
  // first record. `latencies` must outlive the shard.
  void set_latencies(LatencyMetrics* latencies) { latencies_ = latencies; }

 private:
  struct Cell {
    std::atomic<uint64_t> count{0};
    std::atomic<uint64_t> ns{0};
    void Add(uint64_t duration_ns);
    CountAndNs Read() const;
  };
  struct BatchCells {
    Cell compute_input, compute_infer, compute_output;
  };

  LatencyMetrics* latencies_ = nullptr;
  std::atomic<uint64_t> last_inference_ms_{0};
  std::atomic<uint64_t> inference_count_{0};
  std::atomic<uint64_t> execution_count_{0};
  Cell success_, fail_, queue_, compute_input_, compute_infer_, compute_output_;
  Cell cache_hit_, cache_miss_;
  std::array<std::atomic<uint64_t>, kNumFailureReasons> failures_{};
  static constexpr size_t kNumDirectBatches = 65;
  std::array<BatchCells, kNumDirectBatches> batches_;  // by batch size
  mutable std::mutex rare_mutex_;                      // guards the members below, used rarely
  std::map<uint64_t, BatchCounts> large_batches_;
  std::vector<ResponseCounts> responses_;  // by index; the last possible one is kLastResponseIndex
};

class ModelStatistics {
 public:
  ModelStatistics();

  // The shard for requests that the host answers itself: rejected, cancelled or never executed.
  StatisticsShard& host() { return *shards_.front(); }
  // The shard is valid as long as this object. [load thread]
  StatisticsShard& AddShard();
  StatisticsSnapshot Sum() const;
  // Records distributions from now on. Must be called before the model is ready. [load thread]
  void SetLatencyMetrics(std::unique_ptr<LatencyMetrics> latencies);
  LatencyMetrics* latencies() const { return latencies_.get(); }  // null: not recorded

 private:
  std::unique_ptr<LatencyMetrics> latencies_;
  mutable std::mutex mutex_;  // guards shards_
  std::vector<std::unique_ptr<StatisticsShard>> shards_;
};

// The memory that a model's backend reports as used: the array "memory_usage" of the statistics.
// [any thread]
class MemoryUsage {
 public:
  struct Entry {
    std::string type;  // "CPU", "CPU_PINNED", "GPU"
    int64_t id = 0;
    uint64_t byte_size = 0;
  };

  // Replaces the previous report of `reporter`, which is the model or one of its instances.
  void Report(const void* reporter, std::vector<Entry> entries);
  // The sum of all reports for each type and id.
  std::vector<Entry> Sum() const;

 private:
  mutable std::mutex mutex_;  // guards reports_
  std::map<const void*, std::vector<Entry>> reports_;
};

// Formats one element of the JSON array "model_stats".
std::string StatisticsJson(const std::string& model, int64_t version,
                           const StatisticsSnapshot& snapshot,
                           const std::vector<MemoryUsage::Entry>& memory_usage);

}  // namespace nereid::core
