// What is traced: the settings of the server, and what a model has instead of them. [any thread]
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/frontend/tracing/trace_file_rule.h"
#include "nereid/status.h"
#include "triton/core/tritonserver.h"

namespace nereid {

enum class TraceMode { kTriton, kOpenTelemetry };

struct TraceValues {
  uint32_t level = TRITONSERVER_TRACE_LEVEL_DISABLED;  // bits: TIMESTAMPS, TENSORS
  uint64_t rate = 1000;                                // one request in so many
  int64_t count = -1;                                  // how many more; -1: no end
  uint64_t log_frequency = 0;                          // traces a file; 0: all in one
};

// What a client wants changed, by the names of the protocol. No value clears the setting: a model
// falls back to the server's, the server to what it was started with.
using TraceChange = std::vector<std::pair<std::string, std::optional<std::vector<std::string>>>>;

// The bits of a level's name: OFF, TIMESTAMPS, TENSORS.
Result<uint32_t> ParseTraceLevel(std::string_view name);
std::vector<std::string> TraceLevelNames(uint32_t level);

// Whether, and how, one request is traced.
struct TraceSample {
  uint32_t level;
  TraceFileRule rule;
};

class TraceSettings {
 public:
  explicit TraceSettings(TraceValues initial)
      : initial_(initial), server_(initial), counted_(initial.count) {
    Refresh();
  }

  // An empty model is the server.
  TraceValues values(const std::string& model) const;
  // All of `change` or, with an error, nothing.
  Status Apply(const std::string& model, const TraceChange& change);
  // Counts one request to `model`. With `is_forced` the rate is left aside: who asks was traced.
  std::optional<TraceSample> Sample(const std::string& model, bool is_forced);
  // False when no request is traced at all; cheap.
  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }

 private:
  struct Own {  // of one model
    std::optional<uint32_t> level;
    std::optional<uint64_t> rate;
    std::optional<int64_t> count;
    std::optional<uint64_t> log_frequency;
    uint64_t num_seen = 0;
    int64_t counted = -1;  // as `counted_`
  };

  TraceValues ValuesOf(const Own* own) const;
  Status ApplyOne(const std::string& key, const std::optional<std::vector<std::string>>& value,
                  TraceValues& server, Own* own) const;
  void Refresh();

  const TraceValues initial_;
  std::atomic<bool> is_on_{false};
  mutable std::mutex mutex_;  // guards all below
  TraceValues server_;
  uint64_t num_seen_ = 0;
  int64_t
      counted_;  // the count when settings changed last: that many traces are a file of their own
  std::map<std::string, Own> models_;
};

}  // namespace nereid
