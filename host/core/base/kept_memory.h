// Memory of objects whose handles third parties hold, and may use once more after the end: a class
// that derives from KeptMemory<itself> is made by new alone, and IsLive() of a deleted one says
// false instead of reading memory that is somebody else's by now. The last kNumKnown of each class
// that were deleted are as good as known; the memory of older ones serves new objects or goes back
// to the heap. Costs two atomic operations a deletion, no lock, no allocation. [any thread]
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#if defined(NEREID_SANITIZE_ADDRESS)
#include <sanitizer/asan_interface.h>
#endif

namespace nereid {

template <typename T>
class KeptMemory {
 public:
  [[gnu::noinline]] static void* operator new(size_t size_bytes) {
    void* memory = size_bytes == sizeof(T) ? TakeOld() : nullptr;  // not of classes above T
    if (memory == nullptr) memory = ::operator new(sizeof(Header) + size_bytes);
    return new (memory) Header(size_bytes) + 1;
  }
  // The memory stays for a while, but for ASan it is gone.
  [[gnu::noinline]] static void operator delete(void* object) {
    Header* header = HeaderOf(object);
    header->mark.store(0, std::memory_order_release);
    Poison(header);
    const size_t place = next_.fetch_add(1, std::memory_order_relaxed) % kNumKept;
    Header* oldest = kept_[place].exchange(header, std::memory_order_acq_rel);
    if (oldest == nullptr) return;
    Unpoison(oldest);
    ::operator delete(oldest);
  }
  // `object` came from new and may have been deleted since.
  static bool IsLive(const T* object) {
    return HeaderOf(const_cast<T*>(object))->mark.load(std::memory_order_acquire) == kLive;
  }

 private:
  static constexpr uint64_t kLive = 0x6E657265696421A5;
  static constexpr size_t kNumKnown = 64;
  static constexpr size_t kNumKept = 4 * kNumKnown;

  struct alignas(std::max_align_t) Header {
    explicit Header(size_t size_bytes) : size_bytes(size_bytes) {}
    std::atomic<uint64_t> mark{kLive};
    const size_t size_bytes;
  };
  static Header* HeaderOf(void* object) { return static_cast<Header*>(object) - 1; }

  // The memory of the oldest, if more than kNumKnown are there; null: the heap's turn. Objects are
  // mostly made on one thread and deleted on another, which is what a heap is slowest at.
  static void* TakeOld() {
#if !defined(NEREID_SANITIZE_ADDRESS)
    size_t taken = taken_.load(std::memory_order_acquire);
    const size_t end = next_.load(std::memory_order_relaxed);  // after taken_, so never before it
    const size_t oldest = end - taken > kNumKept ? end - kNumKept : taken;
    if (end - oldest > kNumKnown &&
        taken_.compare_exchange_strong(taken, oldest + 1, std::memory_order_acq_rel)) {
      return kept_[oldest % kNumKept].exchange(nullptr, std::memory_order_acq_rel);
    }
#endif
    return nullptr;
  }

#if defined(NEREID_SANITIZE_ADDRESS)
  static void Poison(Header* header) {
    __asan_poison_memory_region(header + 1, header->size_bytes);
  }
  static void Unpoison(Header* header) {
    __asan_unpoison_memory_region(header + 1, header->size_bytes);
  }
#else
  static void Poison(Header*) {}
  static void Unpoison(Header*) {}
#endif

  static inline std::atomic<size_t> next_{0};   // deletions so far
  static inline std::atomic<size_t> taken_{0};  // of which the memory of so many was used again
  static inline std::array<std::atomic<Header*>, kNumKept> kept_{};
};

}  // namespace nereid
