// Eviction by retention priority, and the checks of a request's retention.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

#include "backends/llm_core/engine/block_pool.h"
#include "backends/llm_core/engine/kv_retention.h"

namespace nereid::llm {
namespace {

using ::testing::HasSubstr;
using Tokens = std::vector<int32_t>;

// A pool of blocks of two tokens, whose prompts are kept with a retention.
class RetentionTest : public ::testing::Test {
 protected:
  // Keeps the blocks of a prompt.
  void Keep(const Tokens& tokens, const std::vector<BlockRetention>& retention) {
    PrefixChain chain = PrefixChain::Start(0);
    std::vector<int32_t> table;
    for (size_t i = 0; i < tokens.size(); i += 2) {
      table.push_back(blocks_.Allocate());
      const uint64_t hash = blocks_.PreparePrefix(tokens.data() + i, table.back(), chain);
      blocks_.InsertPrefix(tokens.data() + i, table.back(), hash, chain);
      blocks_.SetRetention(table.back(), retention[std::min(i / 2, retention.size() - 1)]);
    }
    blocks_.ReleaseAll(table);
  }
  size_t NumKnown(const Tokens& tokens) {
    PrefixChain chain = PrefixChain::Start(0);
    std::vector<int32_t> found;
    blocks_.MatchPrefix(tokens, 9, chain, found);
    return found.size();
  }
  // Takes blocks that no prompt can find.
  void Take(int32_t count) {
    while (count-- > 0) taken_.push_back(blocks_.Allocate());
    const std::vector<std::span<const int32_t>> tables = {taken_};
    const Status status = blocks_.CheckInvariants(tables);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  BlockPool blocks_{6, 2, true};
  std::vector<int32_t> taken_;
};

TEST_F(RetentionTest, EvictsTheLowestPriorityFirstHoweverRecentlyUsed) {
  Keep({1, 1, 1, 2}, {{80, 0}});
  Keep({2, 1, 2, 2}, {{35, 0}});
  Keep({3, 1, 3, 2}, {{10, 0}});
  Take(2);
  EXPECT_EQ(NumKnown({3, 1, 3, 2}), 0u);
  Take(2);
  EXPECT_EQ(NumKnown({2, 1, 2, 2}), 0u);
  EXPECT_EQ(NumKnown({1, 1, 1, 2}), 2u);
  Take(2);
  EXPECT_EQ(NumKnown({1, 1, 1, 2}), 0u);
}

TEST_F(RetentionTest, PriorityFallsBackToTheDefaultWhenItsDurationEnds) {
  blocks_.SetTime(1000);
  Keep({1, 1, 1, 2}, {{90, 500}});
  Keep({2, 1, 2, 2}, {{35, 0}});
  Keep({3, 1, 3, 2}, {{36, 0}});
  blocks_.SetTime(1499);
  Take(1);
  EXPECT_EQ(NumKnown({1, 1, 1, 2}), 2u);
  EXPECT_EQ(NumKnown({2, 1, 2, 2}), 1u);
  blocks_.SetTime(1500);  // now as the second prompt, which was used later
  Take(2);
  EXPECT_EQ(NumKnown({1, 1, 1, 2}), 0u);
  EXPECT_EQ(NumKnown({2, 1, 2, 2}), 1u);
  Take(1);
  EXPECT_EQ(NumKnown({2, 1, 2, 2}), 0u);
  EXPECT_EQ(NumKnown({3, 1, 3, 2}), 2u);
}

TEST_F(RetentionTest, BlocksThatNoPromptCanFindAnyMoreAreFreedWithTheirPrefix) {
  Keep({1, 1, 1, 2, 1, 3}, {{10, 0}, {90, 0}, {90, 0}});
  EXPECT_EQ(blocks_.num_evictable(), 3);
  Take(4);
  EXPECT_EQ(blocks_.num_evictable(), 0);
  EXPECT_EQ(blocks_.num_free(), 2);
  EXPECT_EQ(NumKnown({1, 1, 1, 2, 1, 3}), 0u);
}

TEST_F(RetentionTest, NewContentOfABlockHasTheDefaultPriority) {
  for (int32_t round = 0; round < 3; ++round) {
    Keep({round, 1, round, 2, round, 3, round, 4, round, 5, round, 6}, {{90, 0}});
    blocks_.ReleaseAll(taken_);
    Take(6);
    blocks_.ReleaseAll(taken_);
  }
  Keep({7, 1, 7, 2}, {{36, 0}});
  PrefixChain chain = PrefixChain::Start(0);
  const Tokens plain = {8, 1};
  std::vector<int32_t> table = {blocks_.Allocate()};
  blocks_.InsertPrefix(plain.data(), table[0], blocks_.PreparePrefix(plain.data(), table[0], chain),
                       chain);
  blocks_.ReleaseAll(table);
  Take(4);
  EXPECT_EQ(NumKnown(plain), 0u);
  EXPECT_EQ(NumKnown({7, 1, 7, 2}), 2u);
}

// Prompts of one block, against a plain list of what is kept.
TEST(EvictionOrderTest, AgreesWithAPlainListUnderRandomPriorities) {
  std::mt19937 random(11);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  std::vector<KvBlock> all(30);
  EvictionOrder order(all);
  std::map<int32_t, std::tuple<int32_t, int64_t, int64_t>> plain;  // priority, end or -1, use
  int64_t now = 0;
  for (int64_t round = 0; round < 20000; ++round) {
    now += pick(0, 3);
    const int32_t block = pick(0, 29);
    if (plain.count(block) > 0) {
      order.Remove(block);
      plain.erase(block);
    } else {
      all[block].priority = static_cast<uint8_t>(pick(0, 3) == 0 ? pick(0, 100) : 35);
      all[block].duration_ms = pick(0, 1) * pick(1, 60);
      const int64_t end = all[block].duration_ms == 0 ? -1 : now + all[block].duration_ms;
      plain[block] = {all[block].priority, end, round};
      order.Add(block, now);
    }
    int32_t expected = -1;
    std::pair<int32_t, int64_t> best = {101, 0};
    for (auto& [each, state] : plain) {
      auto& [priority, end, use] = state;
      if (end >= 0 && end <= now) priority = kDefaultRetentionPriority, end = -1;
      if (std::make_pair(priority, use) < best) best = {priority, use}, expected = each;
    }
    ASSERT_EQ(order.First(now), expected);
    ASSERT_EQ(order.size(), static_cast<int32_t>(plain.size()));
    ASSERT_EQ(order.Members().size(), plain.size());
  }
}

TEST(KvRetentionTest, ABlockHasTheRetentionOfTheRangeWithItsFirstToken) {
  KvRetention retention;
  retention.ranges = {{8, -1, 90, 100}, {0, 4, 20, -1}};
  EXPECT_EQ(retention.Of(0, 20)->priority, 20);
  EXPECT_EQ(retention.Of(0, 20)->duration_ms, 0);
  EXPECT_FALSE(retention.Of(4, 20).has_value());
  EXPECT_EQ(retention.Of(16, 20)->priority, 90);
  EXPECT_EQ(retention.Of(16, 20)->duration_ms, 100);
  EXPECT_FALSE(retention.Of(20, 20).has_value());
  retention.decode_priority = 70;
  EXPECT_EQ(retention.Of(20, 20)->priority, 70);
}

TEST(KvRetentionTest, WrongRangesAreRefusedWithBothValues) {
  const auto message = [](const TokenRangeRetention& range) {
    KvRetention retention;
    retention.ranges = {{0, 4, 35, -1}, range};
    return std::string(CheckRetention(retention, 20).message());
  };
  EXPECT_EQ(message({4, 20, 100, 1}), "");
  EXPECT_THAT(message({20, -1, 1, -1}), HasSubstr("'retention_token_range_starts' has 20, "
                                                  "expected 0 to 19"));
  EXPECT_THAT(message({-1, 3, 1, -1}), HasSubstr("has -1, expected 0 to 19"));
  EXPECT_THAT(message({5, 21, 1, -1}), HasSubstr("'retention_token_range_ends' has 21 for the "
                                                 "start 5, expected 6 to 20"));
  EXPECT_THAT(message({5, 5, 1, -1}), HasSubstr("has 5 for the start 5"));
  EXPECT_THAT(message({5, 6, 101, -1}),
              HasSubstr("'retention_token_range_priorities' is 101, expected 0 to 100"));
  EXPECT_THAT(message({5, 6, 1, 0}),
              HasSubstr("'retention_token_range_durations_ms' is 0, expected 1 or more"));
  EXPECT_THAT(message({3, 6, 1, -1}),
              HasSubstr("'retention_token_range_starts' has 3, within the range from 0 to 4"));
  KvRetention decode;
  decode.decode_priority = -1;
  EXPECT_THAT(CheckRetention(decode, 1).message(), HasSubstr("'retention_decode_priority' is -1"));
  decode.decode_priority = 1;
  decode.decode_duration_ms = -2;
  EXPECT_THAT(CheckRetention(decode, 1).message(),
              HasSubstr("'retention_decode_duration_ms' is -2"));
}

}  // namespace
}  // namespace nereid::llm
