// Memory of objects whose handles third parties hold, and may use once more after the end: a class
// that derives from KeptMemory<itself> is made by new alone, and IsLive() of a deleted one says
// false instead of reading memory that is somebody else's by now. The last kNumKept of each class
// that were deleted are known for certain; the memory of older ones goes back to the heap. Costs
// two atomic operations a deletion, no lock, no allocation. [any thread]
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
    return new (::operator new(sizeof(Header) + size_bytes)) Header(size_bytes) + 1;
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
  static constexpr size_t kNumKept = 64;

  struct alignas(std::max_align_t) Header {
    explicit Header(size_t size_bytes) : size_bytes(size_bytes) {}
    std::atomic<uint64_t> mark{kLive};
    const size_t size_bytes;
  };
  static Header* HeaderOf(void* object) { return static_cast<Header*>(object) - 1; }

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

  static inline std::atomic<size_t> next_{0};
  static inline std::array<std::atomic<Header*>, kNumKept> kept_{};
};

}  // namespace nereid
