// Spins that find work continue; spins that find none become rare.
#include "base/spin_wait.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace nereid {
namespace {

class SpinWaitTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!spin_.ShouldSpin()) GTEST_SKIP() << "no spinning on one core or with NEREID_SPIN_US=0";
  }
  SpinWait spin_;
};

TEST_F(SpinWaitTest, ReturnsTrueWhenReady) {
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(spin_.ShouldSpin());
    EXPECT_TRUE(spin_.SpinUntil([] { return true; }));
  }
}

TEST_F(SpinWaitTest, SpinsLessOftenAfterFindingNoWork) {
  EXPECT_FALSE(spin_.SpinUntil([] { return false; }));
  int num_skipped = 0;
  while (!spin_.ShouldSpin()) ++num_skipped;
  EXPECT_GE(num_skipped, 1);
  EXPECT_FALSE(spin_.SpinUntil([] { return false; }));
  int num_skipped_later = 0;
  while (!spin_.ShouldSpin()) ++num_skipped_later;
  EXPECT_GE(num_skipped_later, num_skipped);
}

TEST_F(SpinWaitTest, SpinsAgainAfterAShortSleep) {
  // False if another thread used the core during the spin or the sleep.
  const auto spins_again = [] {
    SpinWait spin;
    EXPECT_FALSE(spin.SpinUntil([] { return false; }));
    spin.Sleep([] {});
    EXPECT_FALSE(spin.ShouldSpin());
    spin.Sleep([] {});
    return spin.ShouldSpin();
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool has_spun = false;
  while (!(has_spun = spins_again()) && std::chrono::steady_clock::now() < end) continue;
  EXPECT_TRUE(has_spun);
}

TEST_F(SpinWaitTest, SleepsByCallingTheGivenFunction) {
  int num_slept = 0;
  for (int i = 0; i < 3; ++i) spin_.Sleep([&] { ++num_slept; });
  EXPECT_EQ(num_slept, 3);
}

TEST_F(SpinWaitTest, TerminatesWhenManyThreadsSpin) {
  std::atomic<int> num_done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&num_done] {
      SpinWait spin;
      for (int i = 0; i < 100; ++i) {
        if (spin.ShouldSpin()) spin.SpinUntil([i] { return i % 3 == 0; });
      }
      ++num_done;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_done.load(), 4);
}

}  // namespace
}  // namespace nereid
