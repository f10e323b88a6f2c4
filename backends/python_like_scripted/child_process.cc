#include "backends/python_like_scripted/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace nereid::python {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  // dup2 onto the same number clears close-on-exec in the child.
  void Keep(int fd) { posix_spawn_file_actions_adddup2(&actions_, fd, fd); }
  void Redirect(int fd, int target) { posix_spawn_file_actions_adddup2(&actions_, fd, target); }
  void Null(int target) {
    posix_spawn_file_actions_addopen(&actions_, target, "/dev/null", O_RDONLY, 0);
  }
  void Directory(const std::string& path) {
    if (!path.empty()) posix_spawn_file_actions_addchdir_np(&actions_, path.c_str());
  }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

class Attributes {
 public:
  Attributes() {
    posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~Attributes() { posix_spawnattr_destroy(&attributes_); }
  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

std::string HowEnded(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return StrCat("exited with code ", info.si_status);
  const char* name = sigabbrev_np(info.si_status);
  return StrCat("was killed by signal ", info.si_status, " (SIG", name == nullptr ? "?" : name, ")",
                info.si_status == SIGKILL ? ", as the kernel does where memory runs out" : "");
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::Start(ProcessCommand command,
                                                          const std::vector<int>& fds,
                                                          int output_fd) {
  int lifetime_pipe[2];
  if (pipe2(lifetime_pipe, O_CLOEXEC) != 0) return UnavailableError("pipe: ", strerror(errno));
  const UniqueFd lifetime_read(lifetime_pipe[0]);
  UniqueFd lifetime_write(lifetime_pipe[1]);
  FileActions actions;
  for (const int fd : fds) actions.Keep(fd);
  actions.Keep(lifetime_read.get());
  actions.Null(STDIN_FILENO);
  actions.Redirect(output_fd, STDOUT_FILENO);
  actions.Redirect(output_fd, STDERR_FILENO);
  actions.Directory(command.directory);
  command.arguments.push_back(std::to_string(lifetime_read.get()));

  const std::string program = command.arguments.front();
  std::vector<char*> arguments = Pointers(command.arguments);
  std::vector<char*> environment = Pointers(command.environment);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, program.c_str(), actions.get(), Attributes().get(),
                                 arguments.data(), environment.data());
  if (error != 0) {
    return UnavailableError("cannot start interpreter '", program, "': ", strerror(error));
  }
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.is_open()) {
    const int cause = errno;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return UnsupportedError("pidfd_open: ", strerror(cause), "; Linux 5.3 or later is needed");
  }
  return std::unique_ptr<ChildProcess>(
      new ChildProcess(pid, std::move(pidfd), std::move(lifetime_write)));
}

ChildProcess::~ChildProcess() {
  if (is_reaped_) return;
  Kill();
  (void)Wait();
}

bool ChildProcess::IsStopped() const {
  siginfo_t info{};
  const int options = WSTOPPED | WNOHANG | WNOWAIT;
  return !is_reaped_ && waitid(P_PID, static_cast<id_t>(pid_), &info, options) == 0 &&
         info.si_pid == pid_;
}

void ChildProcess::Kill() const {
  if (!is_reaped_) kill(-pid_, SIGKILL);
}

std::string ChildProcess::Wait() {
  siginfo_t info{};
  // The process is not reaped yet, so that its id, which is also its group's, is not reused.
  while (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0) {
    if (errno != EINTR) return "ended";
  }
  kill(-pid_, SIGKILL);
  is_reaped_ = true;
  while (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) != 0) {
    if (errno != EINTR) return "ended";
  }
  return HowEnded(info);
}

std::vector<std::string> EnvironmentWith(const std::vector<std::string>& changes) {
  const auto name_of = [](const std::string& text) { return text.substr(0, text.find('=')); };
  std::vector<std::string> result = changes;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string inherited = *entry;
    const bool is_changed = std::any_of(
        changes.begin(), changes.end(),
        [&](const std::string& change) { return name_of(change) == name_of(inherited); });
    if (!is_changed) result.push_back(inherited);
  }
  return result;
}

}  // namespace nereid::python
