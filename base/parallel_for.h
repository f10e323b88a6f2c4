// Runs a loop on several cores, for work that takes milliseconds. It uses the calling thread and
// new threads, one per core and at most 8 in total. [the calling thread waits for the others]
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

#include "base/thread.h"

namespace nereid {

// Calls work(i) once for each i below `count`, in any order. `work` must not throw.
template <typename Work>
void ParallelFor(size_t count, const Work& work) {
  constexpr size_t kMinItemsPerThread = 4;  // fewer items take less time than starting a thread
  constexpr size_t kMaxThreads = 8;
  std::atomic<size_t> next{0};
  const auto run = [&] {
    for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) work(i);
  };
  const size_t num_cores = std::max(std::thread::hardware_concurrency(), 1u);
  const size_t num_threads = std::min({num_cores, kMaxThreads, count / kMinItemsPerThread});
  std::vector<std::thread> others;
  try {
    for (size_t i = 1; i < num_threads; ++i) others.push_back(StartThread(run));
  } catch (const std::system_error&) {
    // The system cannot start more threads: the started ones and the calling one do all the work.
  }
  run();
  for (std::thread& other : others) other.join();
}

}  // namespace nereid
