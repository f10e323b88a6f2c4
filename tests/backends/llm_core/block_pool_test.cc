// Allocation, sharing and the invariant checker.
#include "backends/llm_core/engine/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereid::llm {
namespace {

using ::testing::HasSubstr;

Status Check(const BlockPool& blocks, const std::vector<std::vector<int32_t>>& tables) {
  const std::vector<std::span<const int32_t>> spans(tables.begin(), tables.end());
  return blocks.CheckInvariants(spans);
}

TEST(BlockPoolTest, RoundsTokensUpToBlocks) {
  const BlockPool blocks(4, 16);
  EXPECT_EQ(blocks.BlocksFor(0), 0);
  EXPECT_EQ(blocks.BlocksFor(1), 1);
  EXPECT_EQ(blocks.BlocksFor(16), 1);
  EXPECT_EQ(blocks.BlocksFor(17), 2);
}

TEST(BlockPoolTest, FreesSharedBlockOnlyAfterLastSequence) {
  BlockPool blocks(3, 16);
  std::vector<int32_t> first = {blocks.Allocate(), blocks.Allocate()};
  std::vector<int32_t> second = {first[0]};
  blocks.AddReference(first[0]);
  EXPECT_TRUE(Check(blocks, {first, second}).ok());
  blocks.ReleaseAll(first);
  EXPECT_TRUE(first.empty());
  EXPECT_EQ(blocks.num_free(), 2);
  EXPECT_TRUE(Check(blocks, {second}).ok());
  blocks.ReleaseAll(second);
  EXPECT_EQ(blocks.num_free(), 3);
  EXPECT_TRUE(Check(blocks, {}).ok());
}

TEST(BlockPoolTest, AllocatesEveryBlockOnce) {
  BlockPool blocks(5, 1);
  std::vector<int32_t> table;
  while (blocks.num_free() > 0) table.push_back(blocks.Allocate());
  std::sort(table.begin(), table.end());
  EXPECT_EQ(table, (std::vector<int32_t>{0, 1, 2, 3, 4}));
}

TEST(BlockPoolTest, InvariantCheckNamesTheInconsistentBlock) {
  BlockPool blocks(3, 16);
  const int32_t block = blocks.Allocate();
  EXPECT_THAT(Check(blocks, {}).message(), HasSubstr("1 references counted, 0 held"));
  EXPECT_THAT(Check(blocks, {{block, block}}).message(), HasSubstr("1 references counted, 2 held"));
  EXPECT_THAT(Check(blocks, {{block, 2}}).message(), HasSubstr("KV block 2"));
  EXPECT_THAT(Check(blocks, {{7}}).message(), HasSubstr("KV block 7 in a table"));
}

}  // namespace
}  // namespace nereid::llm
