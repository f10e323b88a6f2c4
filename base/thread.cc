// See thread.h.
#include "base/thread.h"

#include <signal.h>
#include <sys/mman.h>

#include <cstddef>

namespace nereid {
namespace {

// The handler of crashes collects a backtrace. The processor's state, which the kernel stores on
// the same stack, takes up to 11 KiB.
constexpr size_t kStackBytes = size_t{64} << 10;
constexpr size_t kGuardBytes = size_t{4} << 10;
constexpr size_t kMappingBytes = kGuardBytes + kStackBytes;

}  // namespace

AlternateSignalStack::AlternateSignalStack() {
  stack_t present{};
  if (::sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_DISABLE) == 0) return;
  // Takes address space only: a page gets memory when a handler touches it.
  void* const mapping =
      ::mmap(nullptr, kMappingBytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, /*fd=*/-1, /*offset=*/0);
  if (mapping == MAP_FAILED) return;
  stack_t own{};
  own.ss_sp = static_cast<char*>(mapping) + kGuardBytes;
  own.ss_size = kStackBytes;
  if (::mprotect(mapping, kGuardBytes, PROT_NONE) != 0 || ::sigaltstack(&own, nullptr) != 0) {
    ::munmap(mapping, kMappingBytes);
    return;
  }
  mapping_ = mapping;
}

AlternateSignalStack::~AlternateSignalStack() {
  if (mapping_ == nullptr) return;
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  ::sigaltstack(&none, nullptr);
  ::munmap(mapping_, kMappingBytes);
}

}  // namespace nereid
