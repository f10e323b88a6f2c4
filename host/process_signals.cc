// See process_signals.h.
#include "host/process_signals.h"

#include <execinfo.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace nereid {
namespace {

// ---- shutdown signals

// The handler makes only async-signal-safe calls; it wakes the main thread through an eventfd.

int wake_fd = -1;
std::atomic<bool> is_serving{false};
std::atomic<bool> was_signalled{false};

std::atomic<void (*)()> exit_action{nullptr};

void RunExitAction() {
  if (void (*const action)() = exit_action.load()) action();
}

void OnSignal(int) {
  if (!is_serving.load() || was_signalled.exchange(true)) {
    RunExitAction();
    _exit(1);
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd, &one, sizeof(one));
}

void OnBrokenPipe(int) {}

void Handle(int signal_number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal_number, &action, nullptr);
}

// ---- crashes

// The handler does not allocate, and prints only names of exported functions. Looking up names
// takes the lock of dlopen, which the crashing thread may hold or wait for. If the lock is never
// released, an alarm ends the process.

constexpr int kMaxFrames = 64;
constexpr size_t kStackBytes = size_t{64} << 10;
constexpr unsigned kMaxReportS = 10;

int log_fd = -1;
alignas(16) char stack[kStackBytes];  // for the main thread, whose own stack may be exhausted

void Print(int fd, const char* text) {
  [[maybe_unused]] const ssize_t written = write(fd, text, std::strlen(text));
}

void PrintNumber(int fd, int number) {
  char digits[12];
  char* at = digits + sizeof(digits);
  *--at = '\0';
  for (; number > 0; number /= 10) *--at = static_cast<char>('0' + number % 10);
  Print(fd, at);
}

void Report(int fd, int signal_number, void* const* frames, int num_frames) {
  Print(fd, "Signal (");
  PrintNumber(fd, signal_number);
  Print(fd, ") received.\n");
  backtrace_symbols_fd(frames, num_frames, fd);
}

// Ends the process by SIGALRM after `seconds`, even if this thread is blocked.
void EndAfter(unsigned seconds) {
  signal(SIGALRM, SIG_DFL);
  sigset_t alarm_only;
  sigemptyset(&alarm_only);
  sigaddset(&alarm_only, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &alarm_only, nullptr);
  alarm(seconds);
}

void OnCrash(int signal_number) {
  // From now on a second crash, in this or any other thread, ends the process at once.
  signal(SIGSEGV, SIG_DFL);
  signal(SIGABRT, SIG_DFL);
  EndAfter(kMaxReportS);
  void* frames[kMaxFrames];
  const int num_frames = backtrace(frames, kMaxFrames);
  Report(STDERR_FILENO, signal_number, frames, num_frames);
  if (log_fd >= 0) Report(log_fd, signal_number, frames, num_frames);
  raise(signal_number);
}

}  // namespace

void ShutdownSignal::Install() {
  if (wake_fd >= 0) return;
  wake_fd = eventfd(0, EFD_CLOEXEC);
  Handle(SIGINT, &OnSignal);
  Handle(SIGTERM, &OnSignal);
  // Writes to closed sockets return an error instead. SIG_IGN is not used, because child processes
  // would inherit it.
  Handle(SIGPIPE, &OnBrokenPipe);
}

void ShutdownSignal::BeginServing() {
  is_serving.store(true);
}

bool ShutdownSignal::Wait(std::chrono::milliseconds timeout) {
  using std::chrono::milliseconds;
  const auto end = std::chrono::steady_clock::now() + timeout;
  pollfd waited{wake_fd, POLLIN, 0};
  while (!was_signalled.load()) {
    const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
    if (left <= milliseconds(0)) break;
    poll(&waited, 1, static_cast<int>(std::min(left, milliseconds(INT_MAX)).count()));
  }
  return was_signalled.load();
}

void SetExitAction(void (*action)()) {
  exit_action.store(action);
}

void ExitNow(int status) {
  RunExitAction();
  std::_Exit(status);
}

void CrashHandler::Install(const std::string& log_file) {
#if defined(NEREID_SANITIZE_ADDRESS) || defined(NEREID_SANITIZE_THREAD)
  (void)log_file;
#else
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads libgcc now, because the handler must not allocate
  if (!log_file.empty()) {
    log_fd = open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  }
  stack_t own_stack{};
  own_stack.ss_sp = stack;
  own_stack.ss_size = sizeof(stack);
  sigaltstack(&own_stack, nullptr);
  struct sigaction action {};
  action.sa_handler = &OnCrash;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGABRT, &action, nullptr);
#endif
}

}  // namespace nereid
