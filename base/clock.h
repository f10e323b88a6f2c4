// The two clocks of the host. Durations, queue times and the timestamps that backends report use
// the steady clock. Dates that users read use the wall clock. [any thread]
#pragma once

#include <chrono>
#include <cstdint>

namespace nereid {

inline uint64_t SteadyNowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

// `deadline_ns` of the steady clock for a condition variable's wait_until, limited to one hour
// ahead: the standard library's clock arithmetic overflows for deadlines in the far future. Waiting
// loops check their condition again after waking up, so an early timeout does no harm.
inline std::chrono::steady_clock::time_point SteadyDeadline(uint64_t deadline_ns) {
  constexpr uint64_t kHourNs = 3'600'000'000'000;
  const uint64_t latest_ns = SteadyNowNs() + kHourNs;
  return std::chrono::steady_clock::time_point(
      std::chrono::nanoseconds(deadline_ns < latest_ns ? deadline_ns : latest_ns));
}

// The sum, or UINT64_MAX ("never") if it overflows.
inline uint64_t AddNs(uint64_t a_ns, uint64_t b_ns) {
  return a_ns > UINT64_MAX - b_ns ? UINT64_MAX : a_ns + b_ns;
}
// Converts microseconds from a configuration to nanoseconds; UINT64_MAX if that overflows.
inline uint64_t UsToNs(uint64_t us) {
  return us > UINT64_MAX / 1000 ? UINT64_MAX : us * 1000;
}

inline uint64_t WallNowUs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

inline uint64_t WallNowMs() {
  return WallNowUs() / 1000;
}

}  // namespace nereid
