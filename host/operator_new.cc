// operator new and operator delete of the process, over the allocator's C functions. mimalloc's
// library is compiled as C and cannot throw, so its own operator new ends the process where no
// memory is left. A request that needs too much memory must fail alone: these operators throw
// std::bad_alloc, as the standard requires. Linked only together with mimalloc.
#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

// mimalloc returns memory for a size of 0, too.
void* AllocateOrNull(size_t size_bytes) {
  return std::malloc(size_bytes);
}

void* AllocateOrNull(size_t size_bytes, std::align_val_t alignment) {
  void* memory = nullptr;
  // posix_memalign refuses an alignment below that of a pointer.
  const size_t bytes = std::max(static_cast<size_t>(alignment), sizeof(void*));
  return posix_memalign(&memory, bytes, size_bytes) == 0 ? memory : nullptr;
}

template <typename... Alignment>
[[gnu::noinline, gnu::cold]] void* AllocateAgain(size_t size_bytes, Alignment... alignment) {
  while (true) {
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
    if (void* const memory = AllocateOrNull(size_bytes, alignment...)) return memory;
  }
}

template <typename... Alignment>
void* Allocate(size_t size_bytes, Alignment... alignment) {
  void* const memory = AllocateOrNull(size_bytes, alignment...);
  return memory != nullptr ? memory : AllocateAgain(size_bytes, alignment...);
}

}  // namespace

void* operator new(size_t size_bytes) {
  return Allocate(size_bytes);
}
void* operator new[](size_t size_bytes) {
  return Allocate(size_bytes);
}
void* operator new(size_t size_bytes, std::align_val_t alignment) {
  return Allocate(size_bytes, alignment);
}
void* operator new[](size_t size_bytes, std::align_val_t alignment) {
  return Allocate(size_bytes, alignment);
}
void* operator new(size_t size_bytes, const std::nothrow_t&) noexcept {
  return AllocateOrNull(size_bytes);
}
void* operator new[](size_t size_bytes, const std::nothrow_t&) noexcept {
  return AllocateOrNull(size_bytes);
}
void* operator new(size_t size_bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return AllocateOrNull(size_bytes, alignment);
}
void* operator new[](size_t size_bytes, std::align_val_t alignment,
                     const std::nothrow_t&) noexcept {
  return AllocateOrNull(size_bytes, alignment);
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(memory);
}
