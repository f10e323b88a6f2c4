// CPU and memory of the machine, from /proc. One a metrics page. [any thread, one at a time]
#pragma once

#include <cstdint>
#include <optional>

namespace nereid {

class CpuMetrics {
 public:
  struct Memory {
    uint64_t total_bytes;
    uint64_t used_bytes;
  };

  // The busy share of all CPUs since the last call, 0 to 1; empty at the first call.
  std::optional<double> Utilization();
  static std::optional<Memory> ReadMemory();

 private:
  uint64_t last_busy_ = 0;  // in ticks
  uint64_t last_total_ = 0;
};

}  // namespace nereid
