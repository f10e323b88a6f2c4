#include "host/core/observe/cpu_metrics.h"

#include <fstream>
#include <limits>
#include <string>

namespace nereid {

std::optional<double> CpuMetrics::Utilization() {
  std::ifstream file("/proc/stat");
  std::string label;
  file >> label;
  // user nice system idle iowait irq softirq steal
  uint64_t total = 0;
  uint64_t idle = 0;
  for (int i = 0; i < 8; ++i) {
    uint64_t ticks = 0;
    if (!(file >> ticks)) return std::nullopt;
    total += ticks;
    if (i == 3 || i == 4) idle += ticks;
  }
  const uint64_t busy = total - idle;
  const bool first = last_total_ == 0;
  const double share = total > last_total_ && busy >= last_busy_
                           ? static_cast<double>(busy - last_busy_) / (total - last_total_)
                           : 0.0;
  last_busy_ = busy;
  last_total_ = total;
  if (first) return std::nullopt;
  return share;
}

std::optional<CpuMetrics::Memory> CpuMetrics::ReadMemory() {
  std::ifstream file("/proc/meminfo");
  std::optional<uint64_t> total, available;
  std::string key;
  uint64_t kib = 0;
  while (!(total && available) && file >> key >> kib) {
    if (key == "MemTotal:") total = kib * 1024;
    if (key == "MemAvailable:") available = kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  if (!total || !available) return std::nullopt;
  return Memory{*total, *total - *available};
}

}  // namespace nereid
