// TRITONSERVER_DELAY_SCHEDULER=<n>: a scheduler gives out no request until n of them wait. For
// tests of batching, which then know what is in the queue. [under the scheduler's mutex]
#pragma once

#include <cstddef>
#include <cstdlib>

namespace nereid {

class DelayedStart {
 public:
  DelayedStart() {
    const char* const text = std::getenv("TRITONSERVER_DELAY_SCHEDULER");
    if (text != nullptr) num_awaited_ = std::strtoul(text, nullptr, 10);
  }

  bool is_over() const { return num_awaited_ == 0; }
  void End() { num_awaited_ = 0; }

  // Whether requests are still held back; once there were enough, never again.
  bool Holds(size_t num_waiting) {
    if (num_waiting >= num_awaited_) End();
    return !is_over();
  }

 private:
  size_t num_awaited_ = 0;
};

}  // namespace nereid
