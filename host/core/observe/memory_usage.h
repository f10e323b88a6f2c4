// What a model's backend says it occupies: the array "memory_usage" of the statistics. [any thread]
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace nereid {

class MemoryUsage {
 public:
  struct Entry {
    std::string type;  // "CPU", "CPU_PINNED", "GPU"
    int64_t id = 0;
    uint64_t byte_size = 0;
  };

  // Replaces what `reporter` (the model or one of its instances) said before.
  void Report(const void* reporter, std::vector<Entry> entries);
  // Summed by type and id.
  std::vector<Entry> Sum() const;

 private:
  mutable std::mutex mutex_;  // guards reports_
  std::map<const void*, std::vector<Entry>> reports_;
};

}  // namespace nereid
