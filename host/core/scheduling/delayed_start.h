// Delays the start of a scheduler, for tests of batching that need a known queue content. With
// TRITONSERVER_DELAY_SCHEDULER=<n> a scheduler releases no request until n requests wait. With
// TRITONSERVER_BACKLOG_DELAY_SCHEDULER=<n> a sequence batcher also waits for n requests in its
// backlog. [under the scheduler's mutex]
#pragma once

#include <cstddef>
#include <cstdlib>

namespace nereid::core {

class DelayedStart {
 public:
  DelayedStart()
      : num_required_(Number("TRITONSERVER_DELAY_SCHEDULER")),
        num_required_backlog_(num_required_ == 0 ? 0
                                                 : Number("TRITONSERVER_BACKLOG_DELAY_SCHEDULER")) {
  }

  bool is_over() const { return num_required_ == 0; }
  void End() { num_required_ = 0; }

  // True while too few requests wait. Once enough have waited, it returns false permanently.
  bool ShouldDelay(size_t num_waiting) {
    if (num_waiting >= num_required_) End();
    return !is_over();
  }
  bool ShouldDelay(size_t num_waiting, size_t num_backlog) {
    return num_backlog >= num_required_backlog_ ? ShouldDelay(num_waiting) : !is_over();
  }

 private:
  static size_t Number(const char* variable) {
    const char* const text = std::getenv(variable);
    return text != nullptr ? std::strtoul(text, nullptr, 10) : 0;
  }

  size_t num_required_;
  size_t num_required_backlog_;
};

}  // namespace nereid::core
