// Starts the threads of the host and of its backends. Each of them has an alternate signal stack,
// because a signal handler cannot run on a stack that has overflowed: without one, such a crash
// leaves no line in the log. Threads that third-party code creates have none. [any thread]
#pragma once

#include <cstddef>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace nereid {

// Gives the thread that constructs it an alternate signal stack until the end of its life, for
// handlers with SA_ONSTACK. Keeps a stack that the thread already has, such as a sanitizer's.
// If there is no memory for a stack, the thread has none; that is no error.
class AlternateSignalStack {
 public:
  AlternateSignalStack();
  AlternateSignalStack(const AlternateSignalStack&) = delete;
  AlternateSignalStack& operator=(const AlternateSignalStack&) = delete;
  // Must run on the thread that constructed this object.
  ~AlternateSignalStack();

 private:
  void* mapping_ = nullptr;  // a guard page, then the stack
};

// Runs `function` on a new thread with an alternate signal stack. Throws std::system_error as
// std::thread does.
template <typename Function>
std::thread StartThread(Function function) {
  return std::thread([function = std::move(function)]() mutable {
    const AlternateSignalStack stack;
    function();
  });
}

// Appends to `threads` up to `count` threads, of which each runs function(i) with its number i from
// 0; fewer where the system starts no more, which the caller learns from the size. What `function`
// refers to must outlive the threads.
template <typename Function>
void StartThreads(size_t count, const Function& function, std::vector<std::thread>& threads) {
  threads.reserve(threads.size() + count);
  for (size_t i = 0; i < count; ++i) {
    try {
      threads.push_back(StartThread([function, i] { function(i); }));
    } catch (const std::system_error&) {
      return;
    }
  }
}

}  // namespace nereid
