// TRITONSERVER_DELAY_SCHEDULER=<n>: a scheduler gives out no request until n of them wait;
// TRITONSERVER_BACKLOG_DELAY_SCHEDULER=<n>: nor, of sequences, until n wait behind those for a
// slot. For tests of batching, which then know what is in the queue. [under the scheduler's mutex]
#pragma once

#include <cstddef>
#include <cstdlib>

namespace nereid {

class DelayedStart {
 public:
  DelayedStart()
      : num_awaited_(Number("TRITONSERVER_DELAY_SCHEDULER")),
        num_behind_awaited_(num_awaited_ == 0 ? 0
                                              : Number("TRITONSERVER_BACKLOG_DELAY_SCHEDULER")) {}

  bool is_over() const { return num_awaited_ == 0; }
  void End() { num_awaited_ = 0; }

  // Whether requests are still held back; once there were enough, never again.
  bool Holds(size_t num_waiting) {
    if (num_waiting >= num_awaited_) End();
    return !is_over();
  }
  bool Holds(size_t num_waiting, size_t num_behind) {
    return num_behind >= num_behind_awaited_ ? Holds(num_waiting) : !is_over();
  }

 private:
  static size_t Number(const char* variable) {
    const char* const text = std::getenv(variable);
    return text != nullptr ? std::strtoul(text, nullptr, 10) : 0;
  }

  size_t num_awaited_;
  size_t num_behind_awaited_;
};

}  // namespace nereid
