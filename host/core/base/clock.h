// The two clocks of the core. Durations, queue times and the stamps that backends report are
// steady; what users read as a date is wall time. [any thread]
#pragma once

#include <chrono>
#include <cstdint>

namespace nereid {

inline uint64_t SteadyNowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
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
