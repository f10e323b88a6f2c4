// The last things that were deleted, by the numbers of their deletions. How old one is it says
// itself: a thread that stops in the middle of a deletion, for however many others, mixes nothing
// up. No lock, no allocation. [any thread]
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace nereid {

class DeletionRing {
 public:
  static constexpr size_t kNumKnown = 64;  // the last ones, which neither Keep nor TakeOld gives
  static constexpr size_t kNumKept = 4 * kNumKnown;

  struct Entry {
    std::atomic<uint64_t> mark;  // the owner's while it lives, then the number of its deletion
  };

  // Begins the deletion of `entry`; Keep ends it.
  void Begin(Entry* entry) {
    entry->mark.store(next_.fetch_add(1, std::memory_order_relaxed), std::memory_order_release);
  }

  // Gives an entry whose deletion lies at least kNumKept before that of another one: `entry` itself
  // where so many have begun meanwhile. Null: there is room.
  Entry* Keep(Entry* entry) {
    while (true) {
      const uint64_t number = NumberOf(entry);  // read first: once kept it may be somebody else's
      Entry* other = kept_[number % kNumKept].exchange(entry, std::memory_order_acq_rel);
      if (other == nullptr || NumberOf(other) < number) return other;
      entry = other;
    }
  }

  // The oldest, if more than kNumKnown are there; null also where another thread takes it.
  Entry* TakeOld() {
    uint64_t taken = taken_.load(std::memory_order_acquire);
    const uint64_t end = next_.load(std::memory_order_relaxed);  // after taken_, so not before it
    const uint64_t oldest = end - taken > kNumKept ? end - kNumKept : taken;
    if (end - oldest <= kNumKnown ||
        !taken_.compare_exchange_strong(taken, oldest + 1, std::memory_order_acq_rel)) {
      return nullptr;
    }
    Entry* entry = kept_[oldest % kNumKept].exchange(nullptr, std::memory_order_acq_rel);
    // A newer one, if many were deleted since `end` was read.
    if (entry == nullptr || NumberOf(entry) <= oldest) return entry;
    return Keep(entry);
  }

 private:
  static uint64_t NumberOf(const Entry* entry) {
    return entry->mark.load(std::memory_order_relaxed);
  }

  std::atomic<uint64_t> next_{0};   // deletions so far
  std::atomic<uint64_t> taken_{0};  // the next to take
  std::array<std::atomic<Entry*>, kNumKept> kept_{};
};

}  // namespace nereid
