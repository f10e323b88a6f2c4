// Tests of the list of requests in flight.
#include "host/frontend/openai/calls/running_requests.h"

#include <gtest/gtest.h>

namespace nereid::openai {
namespace {

TEST(RunningRequestsTest, ListsTheOldestRequestsWithTheirCountsUntilTheyEnd) {
  RunningRequests running;
  RequestCounts counts[3];
  std::unique_ptr<RunningRequests::Entry> entries[3];
  for (int i = 0; i < 3; ++i) {
    entries[i] = running.Add(std::to_string(i), "m", "/v1/completions", counts[i], [] {});
  }
  counts[0].output_tokens = 7;
  counts[0].prompt_tokens = 5;
  const auto listed = running.List(2);
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[0].id, "0");
  EXPECT_EQ(listed[0].output_tokens, 7);
  EXPECT_EQ(listed[0].prompt_tokens, 5);
  EXPECT_EQ(listed[1].id, "1");
  EXPECT_EQ(running.size(), 3u);
  entries[0].reset();
  EXPECT_EQ(running.List(9)[0].id, "1");
  EXPECT_EQ(running.size(), 2u);
}

TEST(RunningRequestsTest, CancelsARequestOnce) {
  RunningRequests running;
  const RequestCounts counts;
  int num_cancelled = 0;
  auto entry = running.Add("a", "m", "/v1/completions", counts, [&] { ++num_cancelled; });
  EXPECT_FALSE(running.Cancel("b"));
  EXPECT_TRUE(running.Cancel("a"));
  EXPECT_TRUE(running.Cancel("a"));
  EXPECT_EQ(num_cancelled, 1);
  entry.reset();
  EXPECT_FALSE(running.Cancel("a"));
}

}  // namespace
}  // namespace nereid::openai
