// --host-policy: which processor cores and which memory node a thread keeps to. Immutable once
// read. [any thread]
#pragma once

#include <sched.h>
#include <signal.h>

#include <string>
#include <utility>
#include <vector>

#include "nereid/status.h"

namespace nereid {

struct HostBinding {
  std::string policy;      // its name
  std::vector<int> cores;  // empty: those of the node, or any
  int numa_node = -1;      // -1: any

  bool empty() const { return cores.empty() && numa_node < 0; }
};

// The settings `numa-node` (a number) and `cpu-cores` (numbers and ranges, "0-3,8"); the last of
// each counts. INVALID_ARG names policy, setting and value, also where this machine has no such
// node or core; UNSUPPORTED names an unknown setting.
Result<HostBinding> ReadHostBinding(
    const std::string& policy, const std::vector<std::pair<std::string, std::string>>& settings);

// Binds the calling thread for good.
Status BindThread(const HostBinding& binding);

// What a thread gets from the one that starts it: its cores, its memory's nodes, its blocked
// signals. [made on one thread, applied on another]
class ThreadPlacement {
 public:
  // That of the calling thread.
  ThreadPlacement();
  // Gives it to the calling thread, which another one started.
  void Apply() const;

 private:
  bool has_cores_ = false, has_memory_ = false, has_signals_ = false;
  cpu_set_t cores_;
  int memory_mode_ = 0;  // a policy of set_mempolicy, with its nodes
  unsigned long nodes_[CPU_SETSIZE / (8 * sizeof(unsigned long))] = {};
  sigset_t blocked_;
};

// Binds the calling thread until the end of its scope.
class ScopedHostBinding {
 public:
  explicit ScopedHostBinding(const HostBinding& binding);
  ~ScopedHostBinding();
  ScopedHostBinding(const ScopedHostBinding&) = delete;
  ScopedHostBinding& operator=(const ScopedHostBinding&) = delete;

  const Status& status() const { return status_; }

 private:
  bool bound_ = false;
  bool has_memory_policy_ = false;
  cpu_set_t before_;
  Status status_;
};

}  // namespace nereid
