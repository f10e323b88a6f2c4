// Only async-signal-safe calls in the handler; it wakes the main thread through an eventfd.
#include "host/shutdown_signal.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>

namespace nereid {
namespace {

int wake_fd = -1;
std::atomic<bool> is_serving{false};
std::atomic<bool> was_signalled{false};

void OnSignal(int) {
  if (!is_serving.load() || was_signalled.exchange(true)) _exit(1);
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

}  // namespace

void ShutdownSignal::Install() {
  wake_fd = eventfd(0, EFD_CLOEXEC);
  Handle(SIGINT, &OnSignal);
  Handle(SIGTERM, &OnSignal);
  // Writes to closed sockets fail by their result. Not SIG_IGN: child processes would inherit that.
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

}  // namespace nereid
