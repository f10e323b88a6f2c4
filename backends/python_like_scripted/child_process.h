// One worker process: started in a process group of its own, waited for by a pidfd, and killed
// together with everything that it forked. A pipe whose write end only this process holds makes the
// kernel kill it when this process ends in any way. [one thread starts and waits; Kill on any
// thread]
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "nereid/status.h"
#include "nereid/unique_fd.h"

namespace nereid::python {

struct ProcessCommand {
  std::vector<std::string> arguments;    // the first is looked up in PATH
  std::vector<std::string> environment;  // "NAME=value"; replaces the inherited environment
  std::string directory;                 // working directory; empty: this process's
};

class ChildProcess {
 public:
  // The child inherits `fds` with their numbers; stdout and stderr go to `output_fd`. Start appends
  // the number of the lifetime pipe's read end to the arguments.
  static Result<std::unique_ptr<ChildProcess>> Start(ProcessCommand command,
                                                     const std::vector<int>& fds, int output_fd);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Becomes readable when the process has ended.
  int pidfd() const { return pidfd_.get(); }
  // True while a signal such as SIGSTOP has stopped the process. [any thread]
  bool IsStopped() const;
  // Kills the process and its group.
  void Kill() const;
  // Blocks until the process has ended, kills what is left of its group, and returns how it ended:
  // "exited with code 3".
  std::string Wait();

 private:
  ChildProcess(pid_t pid, UniqueFd pidfd, UniqueFd lifetime_pipe)
      : pid_(pid), pidfd_(std::move(pidfd)), lifetime_pipe_(std::move(lifetime_pipe)) {}

  const pid_t pid_;
  const UniqueFd pidfd_;
  const UniqueFd lifetime_pipe_;  // the write end of the lifetime pipe
  std::atomic<bool> is_reaped_{false};
};

// The environment of this process, "NAME=value", with `changes` applied.
std::vector<std::string> EnvironmentWith(const std::vector<std::string>& changes);

}  // namespace nereid::python
