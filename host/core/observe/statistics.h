// What a model version did: counts and durations. Each instance owns a shard, so that instances
// never share a cache line on the hot path; readers sum the shards. [any thread]
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "host/core/observe/latencies.h"
#include "host/core/observe/memory_usage.h"

namespace nereid {

// Label values of nv_inference_request_failure.
enum class FailureReason { kRejected, kCanceled, kBackend, kOther };
inline constexpr size_t kNumFailureReasons = 4;
const char* FailureReasonName(FailureReason reason);

// Steady clock stamps of one request, in order.
struct RequestTimes {
  uint64_t request_start_ns = 0;  // the host took it
  uint64_t queue_start_ns = 0;
  uint64_t exec_start_ns = 0;     // left the queue
  uint64_t compute_start_ns = 0;  // inputs are ready
  uint64_t compute_end_ns = 0;    // results are there
  uint64_t exec_end_ns = 0;       // outputs are written
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

// A sum over shards, consistent only per field.
struct StatisticsSnapshot {
  uint64_t last_inference_ms = 0;  // wall clock; 0: never
  uint64_t inference_count = 0;
  uint64_t execution_count = 0;
  CountAndNs success, fail, queue, compute_input, compute_infer, compute_output;
  CountAndNs cache_hit, cache_miss;
  std::array<uint64_t, kNumFailureReasons> failures{};
  std::map<uint64_t, BatchCounts> batches;       // by batch size
  std::map<uint64_t, ResponseCounts> responses;  // by response index
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
  // Answered from the cache: a success that the model did not see. Steady clock stamps.
  void RecordCacheHit(uint64_t request_start_ns, uint64_t lookup_start_ns, uint64_t lookup_end_ns);
  // What looking up in vain and keeping the answer took.
  void RecordCacheMiss(uint64_t duration_ns);
  // One execution of the backend. Only the exec and compute stamps of `times` are read.
  void RecordExecution(uint64_t batch_size, const RequestTimes& times);
  void RecordResponse(const ResponseTimes& times);

  void AddTo(StatisticsSnapshot* sum) const;
  // Told of each duration too; null: nobody. Before the first record. `latencies` outlives the
  // shard.
  void set_latencies(Latencies* latencies) { latencies_ = latencies; }

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

  Latencies* latencies_ = nullptr;
  std::atomic<uint64_t> last_inference_ms_{0};
  std::atomic<uint64_t> inference_count_{0};
  std::atomic<uint64_t> execution_count_{0};
  Cell success_, fail_, queue_, compute_input_, compute_infer_, compute_output_;
  Cell cache_hit_, cache_miss_;
  std::array<std::atomic<uint64_t>, kNumFailureReasons> failures_{};
  static constexpr size_t kNumDirectBatches = 65;
  std::array<BatchCells, kNumDirectBatches> batches_;  // by batch size; larger ones are rare
  mutable std::mutex rare_mutex_;                      // guards what follows
  std::map<uint64_t, BatchCounts> large_batches_;
  std::map<uint64_t, ResponseCounts> responses_;
};

class ModelStatistics {
 public:
  ModelStatistics();

  // What the host itself answers: rejected, cancelled, never executed.
  StatisticsShard& host() { return *shards_.front(); }
  // Lives as long as this object. [load thread]
  StatisticsShard& AddShard();
  StatisticsSnapshot Sum() const;
  // Keeps distributions from now on. Before the model serves. [load thread]
  void Keep(std::unique_ptr<Latencies> latencies);
  Latencies* latencies() const { return latencies_.get(); }  // null: none are kept

 private:
  std::unique_ptr<Latencies> latencies_;
  mutable std::mutex mutex_;  // guards shards_
  std::vector<std::unique_ptr<StatisticsShard>> shards_;
};

// One element of the array "model_stats".
std::string StatisticsJson(const std::string& model, int64_t version,
                           const StatisticsSnapshot& snapshot,
                           const std::vector<MemoryUsage::Entry>& memory_usage);

}  // namespace nereid
