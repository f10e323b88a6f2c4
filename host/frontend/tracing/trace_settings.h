// Trace settings of the server, and those that a model overrides. [any thread]
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

#include "host/frontend/tracing/trace_record.h"
#include "nereid/status.h"
#include "triton/core/tritonserver.h"

namespace nereid {

enum class TraceMode { kTriton, kOpenTelemetry };

struct TraceValues {
  uint32_t level = TRITONSERVER_TRACE_LEVEL_DISABLED;  // bits: TIMESTAMPS, TENSORS
  uint64_t rate = 1000;                                // one of `rate` requests is traced
  int64_t count = -1;                                  // number of further traces; -1: unlimited
  uint64_t log_frequency = 0;                          // traces per file; 0: all in one file
};

// Settings that a client changes: (name in the protocol, values). No value resets a setting: a
// model's to the server's, the server's to its initial value.
using TraceChange = std::vector<std::pair<std::string, std::optional<std::vector<std::string>>>>;

// Returns the bits of a level name: OFF, TIMESTAMPS or TENSORS.
Result<uint32_t> ParseTraceLevel(std::string_view name);
std::vector<std::string> TraceLevelNames(uint32_t level);

// How one sampled request is traced.
struct TraceSample {
  uint32_t level;
  TraceFileRule rule;
};

class TraceSettings {
 public:
  explicit TraceSettings(TraceValues initial)
      : initial_(initial), server_(initial), count_at_change_(initial.count) {
    Refresh();
  }

  // An empty model name means the server.
  TraceValues values(const std::string& model) const;
  // Applies all of `change`; on an error nothing is changed.
  Status Apply(const std::string& model, const TraceChange& change);
  // Counts a request to `model`; nullopt if it is not traced. `is_forced` ignores the rate, because
  // the client's own trace includes this request.
  std::optional<TraceSample> Sample(const std::string& model, bool is_forced);
  // False if no request can be traced. Cheap.
  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }

 private:
  struct ModelSettings {  // overrides of one model
    std::optional<uint32_t> level;
    std::optional<uint64_t> rate;
    std::optional<int64_t> count;
    std::optional<uint64_t> log_frequency;
    uint64_t num_seen = 0;
    int64_t count_at_change = -1;  // like count_at_change_
  };

  TraceValues ValuesOf(const ModelSettings* own) const;
  Status ApplyOne(const std::string& key, const std::optional<std::vector<std::string>>& value,
                  TraceValues& server, ModelSettings* own) const;
  void Refresh();

  const TraceValues initial_;
  std::atomic<bool> is_on_{false};
  mutable std::mutex mutex_;  // guards all below
  TraceValues server_;
  uint64_t num_seen_ = 0;
  int64_t count_at_change_;  // the count when settings changed last: that many traces are a file of
                             // their own
  std::map<std::string, ModelSettings> models_;
};

}  // namespace nereid
