// One worker process: started in a group of its own, waited for through a pidfd, killed with
// everything it forked. A pipe that only this process holds open kills it when this process ends in
// whatever way. [one thread starts and waits; Kill on any thread]
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "nereid/status.h"
#include "nereid/unique_fd.h"

namespace nereid::scripted {

struct Command {
  std::vector<std::string> arguments;    // the first is looked up in PATH
  std::vector<std::string> environment;  // "NAME=value", instead of those inherited
  std::string directory;                 // working directory; empty: this process's
};

class ChildProcess {
 public:
  // The child inherits `fds` under their numbers; stdout and stderr go to `output_fd`. The number
  // of the descriptor that tells of this process's end is appended to the arguments.
  static Result<std::unique_ptr<ChildProcess>> Start(Command command, const std::vector<int>& fds,
                                                     int output_fd);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Readable once the process ended.
  int pidfd() const { return pidfd_.get(); }
  // By a signal like SIGSTOP, and not continued since. [any thread]
  bool IsStopped() const;
  // The process, and its group.
  void Kill() const;
  // Blocks until it ended, ends what it left behind, and says how it ended: "exited with code 3".
  std::string Wait();

 private:
  ChildProcess(pid_t pid, UniqueFd pidfd, UniqueFd life)
      : pid_(pid), pidfd_(std::move(pidfd)), life_(std::move(life)) {}

  const pid_t pid_;
  const UniqueFd pidfd_;
  const UniqueFd life_;  // the write end
  std::atomic<bool> is_reaped_{false};
};

// "NAME=value" of this process, with `changes` in place.
std::vector<std::string> EnvironmentWith(const std::vector<std::string>& changes);

}  // namespace nereid::scripted
