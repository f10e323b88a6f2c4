// Rank threads: all run at once, the first fault is returned, and no rank waits for one that has
// failed.
#include "backends/gpu_llm/comm/rank_threads.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "tests/support/thread_creation_blocker.h"

namespace nereid::gpu {
namespace {

TEST(RankThreadsTest, EveryRankRunsOncePerCallAndRankZeroOnTheCallersThread) {
  RankThreads threads(4, [] {});
  std::array<int, 4> counts = {};
  for (int round = 1; round <= 50; ++round) {
    const auto caller = std::this_thread::get_id();
    ASSERT_TRUE(threads
                    .Run([&](int32_t rank) {
                      ++counts[rank];
                      EXPECT_EQ(std::this_thread::get_id() == caller, rank == 0);
                      return Status();
                    })
                    .ok());
    EXPECT_EQ(counts, (std::array<int, 4>{round, round, round, round}));
  }
}

TEST(RankThreadsTest, WithoutAThreadForEachRankNothingRuns) {
  const ThreadCreationBlocker blocker;
  RankThreads threads(4, [] { FAIL(); });
  const Status status = threads.Run([](int32_t) -> Status {
    ADD_FAILURE();
    return {};
  });
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "the system starts 1 threads for 4 GPUs, which need one each");
  EXPECT_TRUE(RankThreads(1, [] {}).Run([](int32_t) { return Status(); }).ok());
}

TEST(RankThreadsTest, TheBarrierReturnsTheMinimumToAllRanks) {
  PeerBarrier barrier(3);
  RankThreads threads(3, [&] { barrier.Break(); });
  const Status status = threads.Run([&](int32_t rank) -> Status {
    for (int64_t round = 0; round < 100; ++round) {
      NEREID_ASSIGN_OR_RETURN(const int64_t minimum,
                              barrier.WaitForAll(10 * round + (rank + round) % 3));
      EXPECT_EQ(minimum, 10 * round);
    }
    return {};
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(RankThreadsTest, AFaultWakesTheOtherRanksAndIsReturned) {
  PeerBarrier barrier(3);
  std::atomic<int> num_faults = 0;
  RankThreads threads(3, [&] {
    ++num_faults;
    barrier.Break();
  });
  for (int32_t failing = 0; failing < 3; ++failing) {
    const Status status = threads.Run([&](int32_t rank) -> Status {
      if (rank == failing && failing == 0) return InternalError("rank ", rank, " is broken");
      NEREID_RETURN_IF_ERROR(barrier.WaitForAll().status());
      ADD_FAILURE() << "not all came";
      return {};
    });
    ASSERT_FALSE(status.ok());
    // Once broken, all later waits fail.
    EXPECT_NE(status.message().find(failing == 0 ? "rank 0 is broken" : "another GPU"),
              std::string::npos)
        << status.message();
  }
  EXPECT_EQ(num_faults, 3);
}

TEST(RankThreadsTest, ThreadsThatNeverRanEnd) {
  const RankThreads threads(8, [] {});
}

}  // namespace
}  // namespace nereid::gpu
