// No allocation in the handler, and no names but those of exported functions. The names of a frame
// are found under the lock of dlopen, which the thread that crashes may hold or wait for: an alarm
// ends the process where that never comes free.
#include "host/crash_handler.h"

#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>

namespace nereid {
namespace {

constexpr int kMaxFrames = 64;
constexpr size_t kStackBytes = size_t{64} << 10;
constexpr unsigned kMaxReportS = 10;

int log_fd = -1;
alignas(16) char stack[kStackBytes];  // of the main thread: its own may be what is exhausted

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

// Ends the process by SIGALRM, whatever this thread waits for.
void EndAfter(unsigned seconds) {
  signal(SIGALRM, SIG_DFL);
  sigset_t alarm_only;
  sigemptyset(&alarm_only);
  sigaddset(&alarm_only, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &alarm_only, nullptr);
  alarm(seconds);
}

void OnCrash(int signal_number) {
  // What fails in here, and in any other thread from now on, ends the process at once.
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

void CrashHandler::Install(const std::string& log_file) {
#if defined(NEREID_SANITIZE_ADDRESS) || defined(NEREID_SANITIZE_THREAD)
  (void)log_file;
#else
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads what it needs, while that is allowed
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
