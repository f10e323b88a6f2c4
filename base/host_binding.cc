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

// From <linux/mempolicy.h>, which not every machine that builds this has.
constexpr int kMemoryDefault = 0;
constexpr int kMemoryBind = 2;

std::optional<int> Number(std::string_view text) {
  int number = 0;
  const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || last != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// "0-3,8"; none when the text is no such list or a core is beyond what a set can hold.
std::optional<std::vector<int>> Cores(std::string_view text) {
  std::vector<int> cores;
  while (true) {
    const std::string_view part = text.substr(0, text.find(','));
    const size_t dash = part.find('-');
    const auto first = Number(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : Number(part.substr(dash + 1));
    if (!first || !last || *last < *first || *last >= CPU_SETSIZE) return std::nullopt;
    for (int core = *first; core <= *last; ++core) cores.push_back(core);
    if (part.size() == text.size()) return cores;
    text.remove_prefix(part.size() + 1);
  }
}

std::string NodeFolder(int node) {
  return StrCat("/sys/devices/system/node/node", node);
}

// A machine that tells nothing of nodes has one, with every core.
bool HasNode(int node) {
  if (::access(NodeFolder(node).c_str(), F_OK) == 0) return true;
  return node == 0 && ::access(NodeFolder(0).c_str(), F_OK) != 0;
}

std::vector<int> CoresOfNode(int node) {
  std::ifstream file(NodeFolder(node) + "/cpulist");
  std::string line;
  std::getline(file, line);
  return Cores(line).value_or(std::vector<int>());
}

Status Bad(const std::string& policy, const std::string& key, const std::string& value,
           const std::string& expected) {
  return InvalidArgError("host policy '", policy, "': ", key, ": expected ", expected, ", got '",
                         value, "'");
}

Status ReadSetting(const std::string& key, const std::string& value, HostBinding* binding) {
  if (key == "numa-node") {
    const auto node = Number(value);
    if (!node) return Bad(binding->policy, key, value, "the number of a node");
    if (!HasNode(*node)) return Bad(binding->policy, key, value, "a node of this machine");
    binding->numa_node = *node;
    return Status::Ok();
  }
  if (key != "cpu-cores") {
    return UnsupportedError("Unsupported host policy setting '", key, "' of policy '",
                            binding->policy, "': expected numa-node or cpu-cores");
  }
  const auto cores = Cores(value);
  if (!cores) return Bad(binding->policy, key, value, "numbers and ranges of cores, like 0-3,8");
  const long num_cores = ::sysconf(_SC_NPROCESSORS_CONF);
  cpu_set_t mine;  // a container may show fewer cores than it gives numbers to
  CPU_ZERO(&mine);
  (void)::sched_getaffinity(0, sizeof(mine), &mine);
  for (const int core : *cores) {
    if (core < num_cores || CPU_ISSET(core, &mine)) continue;
    return Bad(binding->policy, key, value, StrCat("cores below ", num_cores));
  }
  binding->cores = *cores;
  return Status::Ok();
}

// Where the kernel or a container's rules refuse it, memory comes from the nearest node anyway.
bool KeepMemoryOn(int node) {
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
  if (binding.numa_node >= 0) KeepMemoryOn(binding.numa_node);
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

// Where the kernel refuses to tell, a thread keeps what it has.
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
  bound_ = ::sched_getaffinity(0, sizeof(before_), &before_) == 0;
  has_memory_policy_ = binding.numa_node >= 0;
  status_ = BindThread(binding);
}

ScopedHostBinding::~ScopedHostBinding() {
  if (bound_) ::sched_setaffinity(0, sizeof(before_), &before_);
  if (has_memory_policy_) ::syscall(SYS_set_mempolicy, kMemoryDefault, nullptr, 0);
}

}  // namespace nereid
