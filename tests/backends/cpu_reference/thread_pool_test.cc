// Every chunk runs exactly once; workers sleep between steps.
#include "backends/cpu_reference/thread_pool.h"

#include <gtest/gtest.h>
#include <time.h>

#include <chrono>

#include "tests/support/thread_creation_blocker.h"

namespace nereid::cpu {
namespace {

TEST(ThreadPoolTest, RunsEveryChunkOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    std::vector<std::atomic<int>> counts(200000);
    for (int step = 0; step < 50; ++step) {
      pool.BeginStep();
      for (const int64_t chunks : {0, 1, 2, 7, 100}) {
        pool.ParallelFor(chunks, [&](int64_t chunk, int thread) {
          EXPECT_LT(thread, threads);
          ++counts[chunk];
        });
      }
      pool.EndStep();
    }
    EXPECT_EQ(counts[0], 50 * 4);
    EXPECT_EQ(counts[1], 50 * 3);
    EXPECT_EQ(counts[99], 50);
    for (auto& count : counts) count = 0;
    pool.ParallelFor(200000,
                     // More chunks than one loop can have.
                     [&](int64_t chunk, int) { ++counts[chunk]; });
    for (const auto& count : counts) ASSERT_EQ(count, 1);
  }
}

TEST(ThreadPoolTest, ASystemWithoutThreadsLeavesTheCallers) {
  const ThreadCreationBlocker blocker;
  ThreadPool pool(8);
  EXPECT_EQ(pool.num_threads(), 1);
  int sum = 0;
  pool.BeginStep();
  pool.ParallelFor(100, [&](int64_t chunk, int thread) {
    EXPECT_EQ(thread, 0);
    sum += static_cast<int>(chunk);
  });
  pool.EndStep();
  EXPECT_EQ(sum, 4950);
}

TEST(ThreadPoolTest, RangesCoverTheCountInGrains) {
  ThreadPool pool(3);
  for (const int64_t count : {1, 7, 8, 9, 64, 1000}) {
    std::vector<std::atomic<int>> seen(count);
    pool.ParallelRanges(count, 8, [&](int64_t first, int64_t last, int) {
      EXPECT_EQ(first % 8, 0);
      for (int64_t i = first; i < last; ++i) ++seen[i];
    });
    for (const auto& times : seen) EXPECT_EQ(times, 1);
  }
}

TEST(ThreadPoolTest, WorkersSleepWhenIdle) {
  ThreadPool pool(4);
  pool.BeginStep();
  pool.ParallelFor(100, [](int64_t, int) {});
  pool.EndStep();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto cpu_ns = [] {
    timespec time = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * 1'000'000'000L + time.tv_nsec;
  };
  const long before = cpu_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(cpu_ns() - before, 20'000'000);  // three spinning workers would use 600 ms
}

}  // namespace
}  // namespace nereid::cpu
