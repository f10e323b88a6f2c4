#include "backends/ensemble/inflight_limiter.h"

#include <gtest/gtest.h>

#include <future>

namespace nereid::ensemble {
namespace {

constexpr int kConsumer[] = {1};
const auto kNever = [] { return false; };

TEST(InflightLimiterTest, DoesNotWaitBelowTheLimits) {
  InflightLimiter limiter(2, {.max_requests_per_step = 2});
  limiter.OnStepStarted(1);
  EXPECT_TRUE(limiter.WaitForCapacity(kConsumer, kNever).ok());
}

TEST(InflightLimiterTest, WaitsUntilAConsumerEnds) {
  InflightLimiter limiter(2, {.max_requests_per_step = 1});
  limiter.OnStepStarted(1);
  auto waiting =
      std::async(std::launch::async, [&] { return limiter.WaitForCapacity(kConsumer, kNever); });
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  limiter.OnStepEnded(1);
  EXPECT_TRUE(waiting.get().ok());
}

TEST(InflightLimiterTest, CountsBytesByDefaultAndNeverWaitsWithoutARunningConsumer) {
  InflightLimiter limiter(2, {.max_bytes = 10, .max_wait = std::chrono::milliseconds(1)});
  limiter.OnBytesHeld(11);
  EXPECT_TRUE(limiter.WaitForCapacity(kConsumer, kNever).ok());
  limiter.OnStepStarted(1);
  const Status status = limiter.WaitForCapacity(kConsumer, kNever);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("bytes between steps 10, in use 11"), std::string::npos);
  limiter.OnBytesFreed(11);
  EXPECT_TRUE(limiter.WaitForCapacity(kConsumer, kNever).ok());
}

TEST(InflightLimiterTest, StopsWaitingWhenTheRequestIsOver) {
  InflightLimiter limiter(2, {.max_requests_per_step = 1});
  limiter.OnStepStarted(1);
  std::atomic<bool> stop{false};
  auto waiting = std::async(std::launch::async, [&] {
    return limiter.WaitForCapacity(kConsumer, [&] { return stop.load(); });
  });
  stop = true;
  while (waiting.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    limiter.Wake();
  }
  EXPECT_TRUE(waiting.get().ok());
}

}  // namespace
}  // namespace nereid::ensemble
