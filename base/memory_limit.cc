// See memory_limit.h.
#include "base/memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace nereid {
namespace {

constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

// Returns the number in the file at `path`, or kUnlimited if there is none ("max").
size_t ReadLimit(const std::string& path) {
  std::ifstream file(path);
  size_t limit = 0;
  return file >> limit && limit > 0 ? limit : kUnlimited;
}

// Returns the smallest limit of the group at `path` and of the groups that contain it. Within a
// container the path may not exist below `root`; the limit is then that of the root.
size_t LimitOfGroup(const std::string& root, std::string path, const char* file) {
  size_t limit = ReadLimit(root + "/" + file);
  while (path.size() > 1) {
    limit = std::min(limit, ReadLimit(root + path + "/" + file));
    path.erase(path.rfind('/'));
  }
  return limit;
}

// Each line of /proc/self/cgroup is "<hierarchy>:<controllers>:<path>".
size_t LimitOfControlGroups() {
  size_t limit = kUnlimited;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      limit = std::min(limit, LimitOfGroup("/sys/fs/cgroup", path, "memory.max"));
    } else if (controllers.find(",memory,") != std::string::npos) {
      limit = std::min(limit, LimitOfGroup("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes"));
    }
  }
  return limit;
}

size_t LimitOfAddressSpace() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  return limit.rlim_cur;
}

}  // namespace

size_t MemoryLimitBytes() {
  const size_t machine_bytes =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  return std::min({machine_bytes, LimitOfControlGroups(), LimitOfAddressSpace()});
}

}  // namespace nereid
