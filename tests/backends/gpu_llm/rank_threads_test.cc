// Threads of ranks: all work at once, the first fault is the answer, and nobody waits for who does
// not come.
#include "backends/gpu_llm/comm/rank_threads.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>

namespace nereid::gpu {
namespace {

TEST(RankThreadsTest, EveryRankWorksOnceATurnAndRankZeroOnTheCallersThread) {
  RankThreads threads(4, [] {});
  std::array<int, 4> counts = {};
  for (int turn = 1; turn <= 50; ++turn) {
    const auto caller = std::this_thread::get_id();
    ASSERT_TRUE(threads
                    .Run([&](int32_t rank) {
                      ++counts[rank];
                      EXPECT_EQ(std::this_thread::get_id() == caller, rank == 0);
                      return Status();
                    })
                    .ok());
    EXPECT_EQ(counts, (std::array<int, 4>{turn, turn, turn, turn}));
  }
}

TEST(RankThreadsTest, RanksMeetAndAgreeOnTheLeastValue) {
  MeetingPlace place(3);
  RankThreads threads(3, [&] { place.Break(); });
  const Status status = threads.Run([&](int32_t rank) -> Status {
    for (int64_t turn = 0; turn < 100; ++turn) {
      NEREID_ASSIGN_OR_RETURN(const int64_t least, place.Meet(10 * turn + (rank + turn) % 3));
      EXPECT_EQ(least, 10 * turn);
    }
    return {};
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(RankThreadsTest, AFaultWakesTheOthersAndIsTheAnswer) {
  MeetingPlace place(3);
  std::atomic<int> num_faults = 0;
  RankThreads threads(3, [&] {
    ++num_faults;
    place.Break();
  });
  for (int32_t failing = 0; failing < 3; ++failing) {
    const Status status = threads.Run([&](int32_t rank) -> Status {
      if (rank == failing && failing == 0) return InternalError("rank ", rank, " is broken");
      NEREID_RETURN_IF_ERROR(place.Meet().status());
      ADD_FAILURE() << "not all came";
      return {};
    });
    ASSERT_FALSE(status.ok());
    // Once broken, all later meetings are.
    EXPECT_NE(status.message().find(failing == 0 ? "rank 0 is broken" : "another GPU"),
              std::string::npos)
        << status.message();
  }
  EXPECT_EQ(num_faults, 3);
}

TEST(RankThreadsTest, ThreadsThatNeverWorkedEnd) {
  const RankThreads threads(8, [] {});
}

}  // namespace
}  // namespace nereid::gpu
