// One call of Execute: when it began, when its inputs were read, when its results were there. Its
// requests share it; when the last of them is answered it reports the batch to the host's
// statistics. [any thread]
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "nereid/error.h"
#include "nereid/model_context.h"
#include "triton/core/tritonbackend.h"

namespace nereid {
inline namespace sdk {

// The clock of all statistics.
inline uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

class Execution {
 public:
  // `instance` outlives the requests.
  Execution(const InstanceContext& instance, uint64_t batch_size)
      : instance_(instance), batch_size_(batch_size), start_ns_(NowNs()) {}
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // Statistics that the host refuses are lost: no request fails for them.
  ~Execution() {
    if (start_ns() == 0) return;
    const uint64_t end_ns = NowNs();
    (void)ToStatus(TRITONBACKEND_ModelInstanceReportBatchStatistics(
        instance_.handle(), batch_size_, start_ns_, compute_start_ns(end_ns),
        compute_end_ns(end_ns), end_ns));
  }

  // It was taken in advance and begins only now.
  void MarkBegun() { start_ns_ = NowNs(); }
  // It was taken in advance and will not begin: the batch is not reported.
  void MarkNeverRan() { start_ns_ = 0; }
  void MarkInputsRead() { inputs_read_ns_ = NowNs(); }
  void MarkComputed() { computed_ns_ = NowNs(); }

  // 0: it never ran.
  uint64_t start_ns() const { return start_ns_.load(); }
  // Start <= compute start <= compute end <= `end_ns`, whatever was marked, or is meanwhile for
  // another request.
  uint64_t compute_start_ns(uint64_t end_ns) const {
    return std::min(std::max(start_ns(), inputs_read_ns_.load()), end_ns);
  }
  uint64_t compute_end_ns(uint64_t end_ns) const {
    const uint64_t computed_ns = computed_ns_.load();
    return computed_ns == 0 ? end_ns : std::clamp(computed_ns, compute_start_ns(end_ns), end_ns);
  }

 private:
  const InstanceContext& instance_;
  const uint64_t batch_size_;
  std::atomic<uint64_t> start_ns_;
  std::atomic<uint64_t> inputs_read_ns_{0};
  std::atomic<uint64_t> computed_ns_{0};  // 0: only the answers tell
};

}  // namespace sdk
}  // namespace nereid
