// Limits on how often a client may ping.
#include "host/frontend/grpc/transport/ping_strikes.h"

#include <gtest/gtest.h>

namespace nereid::grpc {
namespace {

TEST(PingStrikesTest, AllowsTheConfiguredNumberOfStrikes) {
  const GrpcKeepaliveOptions options{.max_ping_strikes = 2};
  PingStrikes strikes(options);
  EXPECT_TRUE(strikes.OnPing(0, true));  // the first ping is never too early
  EXPECT_TRUE(strikes.OnPing(1, true));
  EXPECT_TRUE(strikes.OnPing(2, true));
  EXPECT_FALSE(strikes.OnPing(3, true));
}

TEST(PingStrikesTest, AcceptsPingsThatKeepTheInterval) {
  const GrpcKeepaliveOptions options{.min_recv_ping_interval_without_data_ms = 10,
                                     .max_ping_strikes = 1};
  PingStrikes strikes(options);
  for (int64_t now_ms = 0; now_ms < 1000; now_ms += 10) EXPECT_TRUE(strikes.OnPing(now_ms, true));
}

TEST(PingStrikesTest, RequiresTwoHoursBetweenPingsWithoutCalls) {
  GrpcKeepaliveOptions options{.min_recv_ping_interval_without_data_ms = 10, .max_ping_strikes = 1};
  PingStrikes strict(options);
  EXPECT_TRUE(strict.OnPing(0, false));
  EXPECT_TRUE(strict.OnPing(7'199'999, false));
  EXPECT_FALSE(strict.OnPing(7'200'000, false));
  options.permit_without_calls = true;
  PingStrikes lenient(options);
  for (int64_t now_ms = 0; now_ms < 100; now_ms += 10) EXPECT_TRUE(lenient.OnPing(now_ms, false));
}

TEST(PingStrikesTest, ResetsWhenDataWasSent) {
  const GrpcKeepaliveOptions options{.max_ping_strikes = 1};
  PingStrikes strikes(options);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(strikes.OnPing(i, true));
    EXPECT_TRUE(strikes.OnPing(i, true));
    strikes.OnDataSent();
  }
}

TEST(PingStrikesTest, AllowsAnyPingIfStrikesAreNotLimited) {
  const GrpcKeepaliveOptions options{.max_ping_strikes = 0};
  PingStrikes strikes(options);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(strikes.OnPing(0, false));
}

}  // namespace
}  // namespace nereid::grpc
