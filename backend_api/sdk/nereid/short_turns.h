// For threads that work for microseconds at a time beside others that compute for long: where both
// want a core, the thread gets no more of it than before, but in shorter turns, and so sooner once
// it has something to do. Linux 6.12 and later; elsewhere nothing changes. [the thread itself]
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace nereid {

// Whether the system took the wish. Threads that this one starts from now on inherit it.
inline bool AskForShortTurns() {
  // As the kernel has it; the C library of Debian 12 does not know it.
  struct SchedAttributes {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns;
    uint64_t deadline_ns;
    uint64_t period_ns;
  };
  constexpr uint32_t kTimeSharing = 0;   // SCHED_OTHER: others chose their turns themselves
  constexpr uint64_t kTurnNs = 400'000;  // the usual one is about 3 ms; shorter ones cost switches
  SchedAttributes attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return false;
  if (attributes.policy != kTimeSharing) return false;
  attributes.size = sizeof(attributes);
  attributes.runtime_ns = kTurnNs;
  return syscall(SYS_sched_setattr, 0, &attributes, 0) == 0;
}

}  // namespace nereid
