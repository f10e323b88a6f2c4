// A lock-free ring of the objects that were deleted last, in the order of their deletions. Each
// entry carries the number of its own deletion. The ring therefore stays correct even if a thread
// is suspended in the middle of a deletion while any number of others complete. It takes no lock
// and allocates nothing. [any thread]
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace nereid {

class QuarantineRing {
 public:
  // Neither Insert nor TakeOldest returns one of this many last deleted entries.
  static constexpr size_t kMinQuarantined = 64;
  static constexpr size_t kCapacity = 4 * kMinQuarantined;

  struct Entry {
    // The owner's value while the object lives, then the number of its deletion.
    std::atomic<uint64_t> mark;
  };

  // Begins the deletion of `entry`. Insert completes it.
  void BeginDeletion(Entry* entry) {
    entry->mark.store(next_.fetch_add(1, std::memory_order_relaxed), std::memory_order_release);
  }

  // Puts `entry` into the ring and returns an entry that at least kCapacity later deletions
  // followed. That is `entry` itself if so many deletions have begun since BeginDeletion. Null if
  // no entry was displaced.
  Entry* Insert(Entry* entry) {
    while (true) {
      // Read before the exchange: afterwards another thread may take and reuse the entry.
      const uint64_t number = NumberOf(entry);
      Entry* other = slots_[number % kCapacity].exchange(entry, std::memory_order_acq_rel);
      if (other == nullptr || NumberOf(other) < number) return other;
      entry = other;
    }
  }

  // Removes and returns the oldest entry if the ring has more than kMinQuarantined entries. Null
  // otherwise, and if another thread takes that entry at the same time.
  Entry* TakeOldest() {
    uint64_t taken = taken_.load(std::memory_order_acquire);
    // Loaded after taken_, so `end` is not smaller than `taken`.
    const uint64_t end = next_.load(std::memory_order_relaxed);
    const uint64_t oldest = end - taken > kCapacity ? end - kCapacity : taken;
    if (end - oldest <= kMinQuarantined ||
        !taken_.compare_exchange_strong(taken, oldest + 1, std::memory_order_acq_rel)) {
      return nullptr;
    }
    Entry* entry = slots_[oldest % kCapacity].exchange(nullptr, std::memory_order_acq_rel);
    // If many deletions happened after `end` was read, the slot has a newer entry. It goes back.
    if (entry == nullptr || NumberOf(entry) <= oldest) return entry;
    return Insert(entry);
  }

 private:
  static uint64_t NumberOf(const Entry* entry) {
    return entry->mark.load(std::memory_order_relaxed);
  }

  std::atomic<uint64_t> next_{0};   // number of the next deletion
  std::atomic<uint64_t> taken_{0};  // number of the deletion that TakeOldest takes next
  std::array<std::atomic<Entry*>, kCapacity> slots_{};
};

}  // namespace nereid
