// Looks that pay go on; looks that do not become rare.
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
    if (!spin_.MayPay()) GTEST_SKIP() << "on one core, or with NEREID_SPIN_US=0, nobody looks";
  }
  SpinWait spin_;
};

TEST_F(SpinWaitTest, SeesWhatIsReady) {
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(spin_.MayPay());
    EXPECT_TRUE(spin_.Until([] { return true; }));
  }
}

TEST_F(SpinWaitTest, GivesUpAndThenLooksLessOften) {
  EXPECT_FALSE(spin_.Until([] { return false; }));
  int num_left_out = 0;
  while (!spin_.MayPay()) ++num_left_out;
  EXPECT_GE(num_left_out, 1);
  EXPECT_FALSE(spin_.Until([] { return false; }));
  int num_left_out_then = 0;
  while (!spin_.MayPay()) ++num_left_out_then;
  EXPECT_GE(num_left_out_then, num_left_out);
}

TEST_F(SpinWaitTest, LooksAgainAfterAShortSleep) {
  const auto looks_again = [] {  // unless another thread had the core during the look or the sleep
    SpinWait spin;
    EXPECT_FALSE(spin.Until([] { return false; }));
    spin.Rest([] {});
    EXPECT_FALSE(spin.MayPay());
    spin.Rest([] {});
    return spin.MayPay();
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool has_looked = false;
  while (!(has_looked = looks_again()) && std::chrono::steady_clock::now() < end) continue;
  EXPECT_TRUE(has_looked);
}

TEST_F(SpinWaitTest, RestsByTheSleepThatItIsGiven) {
  int num_slept = 0;
  for (int i = 0; i < 3; ++i) spin_.Rest([&] { ++num_slept; });
  EXPECT_EQ(num_slept, 3);
}

TEST_F(SpinWaitTest, EndsWhateverManyThreadsLookFor) {
  std::atomic<int> num_done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&num_done] {
      SpinWait spin;
      for (int i = 0; i < 100; ++i) {
        if (spin.MayPay()) spin.Until([i] { return i % 3 == 0; });
      }
      ++num_done;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_done.load(), 4);
}

}  // namespace
}  // namespace nereid
