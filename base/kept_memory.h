// Memory of objects whose handles third parties hold, and may use once more after the end: a class
// that derives from KeptMemory<itself> is made by new alone, and IsLive() of a deleted one says
// false instead of reading memory that is somebody else's by now. The last DeletionRing::kNumKnown
// of each class that were deleted are known; the memory of older ones serves new objects or goes
// back to the heap. Costs two atomic operations a deletion, no lock, no allocation. [any thread]
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "base/deletion_ring.h"

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
    deleted_.Begin(header);  // from here on its mark is no kLive
    Poison(header);
    auto* oldest = static_cast<Header*>(deleted_.Keep(header));
    if (oldest == nullptr) return;
    Unpoison(oldest);
    ::operator delete(oldest);
  }
  // `object` came from new and may have been deleted since.
  static bool IsLive(const T* object) {
    return HeaderOf(const_cast<T*>(object))->mark.load(std::memory_order_acquire) == kLive;
  }

 private:
  static constexpr uint64_t kLive = 0x6E657265696421A5;  // no number of a deletion gets so high

  struct alignas(std::max_align_t) Header : DeletionRing::Entry {
    explicit Header(size_t size_bytes) : Entry{kLive}, size_bytes(size_bytes) {}
    const size_t size_bytes;
  };
  static Header* HeaderOf(void* object) { return static_cast<Header*>(object) - 1; }

  // Null: the heap's turn. Objects are mostly made on one thread and deleted on another, which is
  // what a heap is slowest at.
  static void* TakeOld() {
#if defined(NEREID_SANITIZE_ADDRESS)
    return nullptr;
#else
    return static_cast<Header*>(deleted_.TakeOld());
#endif
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

  static inline DeletionRing deleted_;
};

}  // namespace nereid
