// Runs a loop on several cores, for work that takes milliseconds. It uses the calling thread and
// new threads, one per core and at most 8 in total. [the calling thread waits for the others]
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
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
  // Where the system starts fewer, those and the calling one do all the work.
  if (num_threads > 1)
    StartThreads(
        num_threads - 1, [&run](size_t) { run(); }, others);
  run();
  for (std::thread& other : others) other.join();
}

}  // namespace nereid
