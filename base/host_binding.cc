#include "base/host_binding.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>

namespace nereid {
namespace {

// From <linux/mempolicy.h>, which is not installed on every build machine.
constexpr int kMemoryDefault = 0;
constexpr int kMemoryBind = 2;

std::optional<int> ParseNumber(std::string_view text) {
  int number = 0;
  const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || last != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// Parses a list such as "0-3,8". Returns nullopt if the text is malformed or a core number does not
// fit a cpu_set_t.
std::optional<std::vector<int>> ParseCores(std::string_view text) {
  std::vector<int> cores;
  while (true) {
    const std::string_view part = text.substr(0, text.find(','));
    const size_t dash = part.find('-');
    const auto first = ParseNumber(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : ParseNumber(part.substr(dash + 1));
    if (!first || !last || *last < *first || *last >= CPU_SETSIZE) return std::nullopt;
    for (int core = *first; core <= *last; ++core) cores.push_back(core);
    if (part.size() == text.size()) return cores;
    text.remove_prefix(part.size() + 1);
  }
}

std::string NodeFolder(int node) {
  return StrCat("/sys/devices/system/node/node", node);
}

// A machine whose kernel shows no NUMA nodes counts as having node 0 with all cores.
bool HasNode(int node) {
  if (::access(NodeFolder(node).c_str(), F_OK) == 0) return true;
  return node == 0 && ::access(NodeFolder(0).c_str(), F_OK) != 0;
}

std::vector<int> CoresOfNode(int node) {
  std::ifstream file(NodeFolder(node) + "/cpulist");
  std::string line;
  std::getline(file, line);
  return ParseCores(line).value_or(std::vector<int>());
}

Status InvalidSetting(const std::string& policy, const std::string& key, const std::string& value,
                      const std::string& expected) {
  return InvalidArgError("host policy '", policy, "': ", key, ": expected ", expected, ", got '",
                         value, "'");
}

Status ReadSetting(const std::string& key, const std::string& value, HostBinding* binding) {
  if (key == "numa-node") {
    const auto node = ParseNumber(value);
    if (!node) return InvalidSetting(binding->policy, key, value, "the number of a node");
    if (!HasNode(*node))
      return InvalidSetting(binding->policy, key, value, "a node of this machine");
    binding->numa_node = *node;
    return Status::Ok();
  }
  if (key != "cpu-cores") {
    return UnsupportedError("Unsupported host policy setting '", key, "' of policy '",
                            binding->policy, "': expected numa-node or cpu-cores");
  }
  const auto cores = ParseCores(value);
  if (!cores)
    return InvalidSetting(binding->policy, key, value, "numbers and ranges of cores, like 0-3,8");
  const long num_cores = ::sysconf(_SC_NPROCESSORS_CONF);
  // A container may report fewer cores than the highest core number that it may use.
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  (void)::sched_getaffinity(0, sizeof(allowed), &allowed);
  for (const int core : *cores) {
    if (core < num_cores || CPU_ISSET(core, &allowed)) continue;
    return InvalidSetting(binding->policy, key, value, StrCat("cores below ", num_cores));
  }
  binding->cores = *cores;
  return Status::Ok();
}

// The caller ignores a failure: if the kernel or a container's rules reject the call, the kernel
// still prefers memory of the nearest node.
bool BindMemoryToNode(int node) {
  unsigned long mask[CPU_SETSIZE / (8 * sizeof(unsigned long))] = {};
  constexpr int kBits = 8 * sizeof(unsigned long);
  if (node >= CPU_SETSIZE) return false;
  mask[node / kBits] |= 1ul << (node % kBits);
  return ::syscall(SYS_set_mempolicy, kMemoryBind, mask, CPU_SETSIZE) == 0;
}

}  // namespace

Result<HostBinding> ReadHostBinding(
    const std::string& policy, const std::vector<std::pair<std::string, std::string>>& settings) {
  HostBinding binding;
  binding.policy = policy;
  for (const auto& [key, value] : settings) {
    NEREID_RETURN_IF_ERROR(ReadSetting(key, value, &binding));
  }
  return binding;
}

Status BindThread(const HostBinding& binding) {
  if (binding.numa_node >= 0) BindMemoryToNode(binding.numa_node);
  const std::vector<int> cores =
      binding.cores.empty() ? CoresOfNode(binding.numa_node) : binding.cores;
  if (cores.empty()) return Status::Ok();
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  if (::sched_setaffinity(0, sizeof(set), &set) == 0) return Status::Ok();
  return InvalidArgError("host policy '", binding.policy, "': cannot bind a thread to its ",
                         cores.size(), " cores, the first of them ", cores.front(), ": ",
                         std::strerror(errno));
}

// If the kernel does not return an attribute, Apply leaves that attribute unchanged.
ThreadPlacement::ThreadPlacement()
    : has_cores_(::sched_getaffinity(0, sizeof(cores_), &cores_) == 0),
      has_memory_(::syscall(SYS_get_mempolicy, &memory_mode_, nodes_, CPU_SETSIZE, nullptr, 0) ==
                  0),
      has_signals_(::pthread_sigmask(SIG_SETMASK, nullptr, &blocked_) == 0) {}

void ThreadPlacement::Apply() const {
  if (has_cores_) ::sched_setaffinity(0, sizeof(cores_), &cores_);
  if (has_memory_) ::syscall(SYS_set_mempolicy, memory_mode_, nodes_, CPU_SETSIZE);
  if (has_signals_) ::pthread_sigmask(SIG_SETMASK, &blocked_, nullptr);
}

ScopedHostBinding::ScopedHostBinding(const HostBinding& binding) {
  if (binding.empty()) return;
  is_bound_ = ::sched_getaffinity(0, sizeof(previous_cores_), &previous_cores_) == 0;
  has_memory_policy_ = binding.numa_node >= 0;
  status_ = BindThread(binding);
}

ScopedHostBinding::~ScopedHostBinding() {
  if (is_bound_) ::sched_setaffinity(0, sizeof(previous_cores_), &previous_cores_);
  if (has_memory_policy_) ::syscall(SYS_set_mempolicy, kMemoryDefault, nullptr, 0);
}

}  // namespace nereid
