// One loop on several cores, for work of milliseconds: the calling thread and as many others as
// there are cores, at most 8 in all. [the calling thread waits for them]
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace nereid {

// Calls work(i) once for each i below `count`, in no order. `work` must not throw.
template <typename Work>
void ParallelFor(size_t count, const Work& work) {
  constexpr size_t kWorthAThread = 4;  // items; fewer are done sooner than a thread has started
  constexpr size_t kMaxThreads = 8;
  std::atomic<size_t> next{0};
  const auto run = [&] {
    for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) work(i);
  };
  const size_t num_cores = std::max(std::thread::hardware_concurrency(), 1u);
  const size_t num_threads = std::min({num_cores, kMaxThreads, count / kWorthAThread});
  std::vector<std::thread> others;
  try {
    for (size_t i = 1; i < num_threads; ++i) others.emplace_back(run);
  } catch (const std::system_error&) {
    // The system has no more threads: those that started, or this one alone, do it all.
  }
  run();
  for (std::thread& other : others) other.join();
}

}  // namespace nereid
