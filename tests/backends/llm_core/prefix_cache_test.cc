// Compares the prefix cache with a plain map of all inserted content.
#include "backends/llm_core/engine/prefix_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "backends/llm_core/engine/block_pool.h"

namespace nereid::llm {
namespace {

using Tokens = std::vector<int32_t>;

bool Insert(PrefixCache& cache, const int32_t* tokens, int32_t block, PrefixChain& chain) {
  return cache.Insert(tokens, block, cache.Prepare(tokens, block, chain), chain);
}

TEST(PrefixCacheTest, FindsTheLongestKnownPrefix) {
  std::vector<KvBlock> all(8);
  PrefixCache cache(all, 2);
  PrefixChain chain = PrefixChain::Start(0);
  const Tokens tokens = {1, 2, 3, 4, 5, 6};
  for (int32_t block = 0; block < 3; ++block) {
    EXPECT_TRUE(Insert(cache, tokens.data() + 2 * block, 5 - block, chain));
  }
  std::vector<int32_t> blocks;
  PrefixChain start = PrefixChain::Start(0);
  cache.Match(Tokens{1, 2, 3, 4, 9, 9}, 3, start, blocks);
  EXPECT_EQ(blocks, (std::vector<int32_t>{5, 4}));
  EXPECT_EQ(start.num_blocks, 2);
  // The same tokens after a different prefix are different content.
  blocks.clear();
  start = PrefixChain::Start(0);
  cache.Match(Tokens{3, 4, 5, 6}, 2, start, blocks);
  EXPECT_TRUE(blocks.empty());
}

TEST(PrefixCacheTest, DoesNotInsertASecondBlockWithTheSameContent) {
  std::vector<KvBlock> all(8);
  PrefixCache cache(all, 2);
  const Tokens tokens = {1, 2, 3, 4};
  PrefixChain first = PrefixChain::Start(0), second = PrefixChain::Start(0);
  EXPECT_TRUE(Insert(cache, tokens.data(), 0, first));
  EXPECT_FALSE(Insert(cache, tokens.data(), 1, second));
  // Continues the chain of the first block.
  EXPECT_TRUE(Insert(cache, tokens.data() + 2, 2, second));
  EXPECT_FALSE(Insert(cache, tokens.data() + 2, 3, first));
  EXPECT_EQ(cache.size(), 2);
}

TEST(PrefixCacheTest, AgreesWithAPlainMapUnderEvictions) {
  constexpr int32_t kBlocks = 24, kSize = 3;
  std::vector<KvBlock> all(kBlocks);
  PrefixCache cache(all, kSize);
  std::map<int32_t, std::pair<uint64_t, Tokens>> plain;  // block -> salt, all tokens up to its end
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    const uint64_t salt = random() % 2;
    Tokens tokens(kSize * (1 + random() % 4));
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 2);
    std::vector<int32_t> blocks;
    PrefixChain chain = PrefixChain::Start(salt);
    cache.Match(tokens, 100, chain, blocks);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Tokens prefix(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(kSize * (i + 1)));
      ASSERT_EQ(plain.at(blocks[i]), std::make_pair(salt, prefix));
    }
    const auto num_known = static_cast<int32_t>(blocks.size());
    if (num_known * kSize < static_cast<int32_t>(tokens.size())) {
      const auto block = static_cast<int32_t>(random() % kBlocks);
      bool is_used = false;  // part of the prefix that was just found
      for (const int32_t known : blocks) is_used |= known == block;
      if (is_used) continue;
      cache.Erase(block);
      plain.erase(block);
      ASSERT_TRUE(Insert(cache, tokens.data() + num_known * kSize, block, chain));
      plain[block] = {salt, Tokens(tokens.begin(), tokens.begin() + (num_known + 1) * kSize)};
    } else if (random() % 4 == 0) {
      const auto block = static_cast<int32_t>(random() % kBlocks);
      cache.Erase(block);
      plain.erase(block);
    }
    ASSERT_EQ(cache.size(), static_cast<int32_t>(plain.size()));
  }
}

TEST(BlockPoolPrefixTest, EvictsTheLeastRecentlyUsedBlockFirst) {
  BlockPool blocks(3, 2, true);
  const Tokens first = {1, 2, 3, 4}, second = {7, 8};
  const auto keep = [&](const Tokens& tokens) {
    PrefixChain chain = PrefixChain::Start(0);
    std::vector<int32_t> table;
    for (size_t i = 0; i < tokens.size(); i += 2) {
      table.push_back(blocks.Allocate());
      const uint64_t hash = blocks.PreparePrefix(tokens.data() + i, table.back(), chain);
      blocks.InsertPrefix(tokens.data() + i, table.back(), hash, chain);
    }
    blocks.ReleaseAll(table);
  };
  const auto num_known = [&](const Tokens& tokens) {
    PrefixChain chain = PrefixChain::Start(0);
    std::vector<int32_t> found;
    blocks.MatchPrefix(tokens, 9, chain, found);
    return found.size();
  };
  keep(first);
  keep(second);
  EXPECT_EQ(blocks.num_evictable(), 3);
  EXPECT_EQ(blocks.num_free(), 3);
  // The end of a chain is evicted before its beginning.
  std::vector<int32_t> table = {blocks.Allocate()};
  EXPECT_EQ(num_known(first), 1u);
  EXPECT_EQ(num_known(second), 1u);
  table.push_back(blocks.Allocate());
  EXPECT_EQ(num_known(first), 0u);
  EXPECT_EQ(num_known(second), 1u);
  const std::vector<std::span<const int32_t>> tables = {table};
  EXPECT_TRUE(blocks.CheckInvariants(tables).ok()) << blocks.CheckInvariants(tables).message();
}

}  // namespace
}  // namespace nereid::llm
