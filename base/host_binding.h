// The option --host-policy: binds threads to CPU cores and to a NUMA node's memory. Immutable after
// it is read. [any thread]
#pragma once

#include <sched.h>
#include <signal.h>

#include <string>
#include <utility>
#include <vector>

#include "nereid/status.h"

namespace nereid {

struct HostBinding {
  std::string policy;      // name of the host policy
  std::vector<int> cores;  // empty: all cores of the NUMA node, or any core if numa_node is -1
  int numa_node = -1;      // -1: any node

  bool empty() const { return cores.empty() && numa_node < 0; }
};

// Reads the settings `numa-node` (a number) and `cpu-cores` (numbers and ranges, "0-3,8"). The last
// value of each setting applies. INVALID_ARG names policy, setting and value if the value cannot be
// read or this machine has no such node or core. UNSUPPORTED names an unknown setting.
Result<HostBinding> ReadHostBinding(
    const std::string& policy, const std::vector<std::pair<std::string, std::string>>& settings);

// Binds the calling thread until it exits.
Status BindThread(const HostBinding& binding);

// The attributes that a thread inherits from the thread that starts it: CPU affinity, memory policy
// and blocked signals. [constructed on one thread, applied on another]
class ThreadPlacement {
 public:
  // Captures the attributes of the calling thread.
  ThreadPlacement();
  // Sets them on the calling thread, which may have been started by another thread.
  void Apply() const;

 private:
  bool has_cores_ = false, has_memory_ = false, has_signals_ = false;
  cpu_set_t cores_;
  int memory_mode_ = 0;  // policy and nodes (nodes_) for set_mempolicy
  unsigned long nodes_[CPU_SETSIZE / (8 * sizeof(unsigned long))] = {};
  sigset_t blocked_;
};

// Binds the calling thread until the object is destroyed.
class ScopedHostBinding {
 public:
  explicit ScopedHostBinding(const HostBinding& binding);
  ~ScopedHostBinding();
  ScopedHostBinding(const ScopedHostBinding&) = delete;
  ScopedHostBinding& operator=(const ScopedHostBinding&) = delete;

  const Status& status() const { return status_; }

 private:
  bool is_bound_ = false;
  bool has_memory_policy_ = false;
  cpu_set_t previous_cores_;
  Status status_;
};

}  // namespace nereid
