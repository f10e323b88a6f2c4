// Allocation with a quarantine, for objects whose handles third parties keep and may use once more
// after deletion. A class derives from QuarantinedMemory<itself> and must be allocated with new.
// IsLive() returns false for a deleted object instead of reading memory that was reused. The memory
// of the last QuarantineRing::kMinQuarantined deleted objects of each class stays in quarantine;
// older memory is reused for new objects or returned to the heap. A deletion costs two atomic
// operations, no lock and no allocation. [any thread]
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "base/quarantine_ring.h"

#if defined(NEREID_SANITIZE_ADDRESS)
#include <sanitizer/asan_interface.h>
#endif

namespace nereid {

template <typename T>
class QuarantinedMemory {
 public:
  [[gnu::noinline]] static void* operator new(size_t size_bytes) {
    // Memory is reused only for T itself: classes derived from T are larger.
    void* memory = size_bytes == sizeof(T) ? TakeOldest() : nullptr;
    if (memory == nullptr) memory = ::operator new(sizeof(Header) + size_bytes);
    return new (memory) Header(size_bytes) + 1;
  }
  // Puts the memory into quarantine. ASan treats it as freed.
  [[gnu::noinline]] static void operator delete(void* object) {
    Header* header = HeaderOf(object);
    quarantine_.BeginDeletion(header);  // from here on, mark differs from kLive
    Poison(header);
    auto* oldest = static_cast<Header*>(quarantine_.Insert(header));
    if (oldest == nullptr) return;
    Unpoison(oldest);
    ::operator delete(oldest);
  }
  // `object` was allocated by new and may have been deleted since then.
  static bool IsLive(const T* object) {
    return HeaderOf(const_cast<T*>(object))->mark.load(std::memory_order_acquire) == kLive;
  }

 private:
  static constexpr uint64_t kLive = 0x6E657265696421A5;  // no deletion number becomes so large

  struct alignas(std::max_align_t) Header : QuarantineRing::Entry {
    explicit Header(size_t size_bytes) : Entry{kLive}, size_bytes(size_bytes) {}
    const size_t size_bytes;
  };
  static Header* HeaderOf(void* object) { return static_cast<Header*>(object) - 1; }

  // Null if memory must come from the heap. Reusing old memory is faster: most objects are
  // allocated on one thread and deleted on another, which is the slow case of a heap.
  static void* TakeOldest() {
#if defined(NEREID_SANITIZE_ADDRESS)
    return nullptr;
#else
    return static_cast<Header*>(quarantine_.TakeOldest());
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

  static inline QuarantineRing quarantine_;
};

}  // namespace nereid
