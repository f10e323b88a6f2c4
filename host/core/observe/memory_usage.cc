#include "host/core/observe/memory_usage.h"

namespace nereid {

void MemoryUsage::Report(const void* reporter, std::vector<Entry> entries) {
  std::lock_guard lock(mutex_);
  reports_[reporter] = std::move(entries);
}

std::vector<MemoryUsage::Entry> MemoryUsage::Sum() const {
  std::map<std::pair<std::string, int64_t>, uint64_t> sums;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [reporter, entries] : reports_) {
      for (const Entry& entry : entries) sums[{entry.type, entry.id}] += entry.byte_size;
    }
  }
  std::vector<Entry> result;
  for (const auto& [place, byte_size] : sums) {
    result.push_back({place.first, place.second, byte_size});
  }
  return result;
}

}  // namespace nereid
