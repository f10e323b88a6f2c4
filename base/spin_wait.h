// A short look for work before a thread sleeps. Waking a thread on an idle core costs tens of
// microseconds, most of all in a virtual machine; the next piece of work of a busy server often
// comes sooner. Every look gives way to whoever else wants the core, and looks that do not pay
// become rare, so that an idle process spends nothing. [each object: one thread]
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>

namespace nereid {

class SpinWait {
  using Clock = std::chrono::steady_clock;

 public:
  // Looks are `times` as long as NEREID_SPIN_US says.
  explicit SpinWait(int times = 1) : limit_(times * Get().limit) {}

  // To be asked once before each sleep: whether a look may pay.
  bool MayPay() {
    if (num_skipped_ >= num_to_skip_) return limit_.count() != 0;
    ++num_skipped_;
    return false;
  }

  // True once ready() is; false when the thread should sleep.
  template <typename Ready>
  bool Until(const Ready& ready) {
    if (num_spinning_.fetch_add(1, std::memory_order_relaxed) >= Get().max_spinning) {
      num_spinning_.fetch_sub(1, std::memory_order_relaxed);
      return false;
    }
    has_looked_ = true;
    const auto start = Clock::now();
    auto spent = Clock::duration::zero();
    bool is_ready = false;
    while (!(is_ready = ready()) && spent < limit_) {
      sched_yield();
      spent = Clock::now() - start;
    }
    num_spinning_.fetch_sub(1, std::memory_order_relaxed);
    // Far beyond the limit another thread had the core: sleepers get it back sooner than spinners.
    Learn(is_ready, spent > 2 * limit_);
    return is_ready;
  }

  // Sleeps by sleep(). A sleep that no look came before, though one would have spared it, brings
  // looks back; after a look that found its core crowded nothing does.
  template <typename Sleep>
  void Rest(const Sleep& sleep) {
    if (has_looked_ || is_crowded_) {
      sleep();
    } else {
      const auto start = Clock::now();
      sleep();
      if (Clock::now() - start <= limit_ + Get().limit) num_to_skip_ = 0;  // and time to wake up
    }
    has_looked_ = false;
  }

 private:
  static constexpr unsigned kMaxToSkip = 1023;

  struct Settings {
    std::chrono::microseconds limit{50};
    int max_spinning = 0;
  };

  // NEREID_SPIN_US is the longest look of a SpinWait(1), 0 for none. On one core nothing comes
  // while one looks.
  static const Settings& Get() {
    static const Settings settings = [] {
      Settings made;
      if (const char* text = std::getenv("NEREID_SPIN_US"); text != nullptr) {
        made.limit = std::chrono::microseconds(std::clamp(std::atol(text), 0L, 1000L));
      }
      const unsigned num_cores = std::thread::hardware_concurrency();
      if (num_cores < 2) made.limit = {};
      made.max_spinning = static_cast<int>((num_cores + 1) / 2);
      return made;
    }();
    return settings;
  }

  void Learn(bool has_paid, bool is_crowded) {
    num_skipped_ = 0;
    is_crowded_ = is_crowded;
    if (is_crowded) {
      num_to_skip_ = kMaxToSkip;
    } else {
      num_to_skip_ = has_paid ? 0 : std::min(2 * num_to_skip_ + 1, kMaxToSkip);
    }
  }

  // Of the library that this is compiled into; more than some would only take cores from work.
  static inline std::atomic<int> num_spinning_{0};

  std::chrono::microseconds limit_;
  unsigned num_to_skip_ = 0;  // looks to leave out before the next
  unsigned num_skipped_ = 0;
  bool has_looked_ = false;  // since the last sleep
  bool is_crowded_ = false;  // at the last look
};

}  // namespace nereid
