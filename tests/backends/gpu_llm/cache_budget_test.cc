// The number of KV blocks that fit, and the error if none fits.
#include "backends/gpu_llm/cache_budget.h"

#include <gtest/gtest.h>

namespace nereid::gpu {
namespace {

CacheBudget Budget() {
  CacheBudget budget;
  budget.device = 3;
  budget.free_bytes = 1000000;
  budget.total_bytes = 5000000;
  budget.weight_bytes = 4000000;
  budget.block_bytes = 1000;
  budget.memory_fraction = 0.5;
  budget.sequence_blocks = 100000;
  return budget;
}

TEST(CacheBudgetTest, TheFractionOfFreeMemoryIsUsed) {
  EXPECT_EQ(*CountCacheBlocks(Budget()), 500);
}

TEST(CacheBudgetTest, ANumberOfTokensTakesWholeBlocks) {
  CacheBudget budget = Budget();
  budget.max_tokens = 129;
  EXPECT_EQ(*CountCacheBlocks(budget), 3);
  budget.max_tokens = 128;
  EXPECT_EQ(*CountCacheBlocks(budget), 2);
}

TEST(CacheBudgetTest, NoMoreBlocksThanAllSequencesCanUse) {
  CacheBudget budget = Budget();
  budget.sequence_blocks = 7;
  EXPECT_EQ(*CountCacheBlocks(budget), 7);
  budget.caches_prefixes = true;  // the configuration says nothing about memory
  EXPECT_EQ(*CountCacheBlocks(budget), 7);
}

TEST(CacheBudgetTest, APrefixCacheGetsWhatIsRequestedBeyondTheSequences) {
  CacheBudget budget = Budget();
  budget.sequence_blocks = 7;
  budget.max_tokens = 64 * 20;
  EXPECT_EQ(*CountCacheBlocks(budget), 7);
  budget.caches_prefixes = true;
  EXPECT_EQ(*CountCacheBlocks(budget), 20);
  budget.max_tokens = 0;
  budget.is_fraction_requested = true;
  EXPECT_EQ(*CountCacheBlocks(budget), 500);
}

TEST(CacheBudgetTest, OfTokensAndAFractionTheSmallerCounts) {
  CacheBudget budget = Budget();
  budget.is_fraction_requested = true;
  budget.max_tokens = 64 * 20;
  EXPECT_EQ(*CountCacheBlocks(budget), 20);
  budget.max_tokens = 64 * 100000;
  EXPECT_EQ(*CountCacheBlocks(budget), 500);
}

TEST(CacheBudgetTest, ARequestThatDoesNotFitIsRefusedWithTheNumbers) {
  CacheBudget budget = Budget();
  budget.max_tokens = 64 * 1001;
  const auto too_many = CountCacheBlocks(budget);
  ASSERT_FALSE(too_many.ok());
  EXPECT_EQ(too_many.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(too_many.status().message(),
            "max_tokens_in_paged_kv_cache 64064 needs 1001 blocks x 1000 bytes = 1001000; GPU 3 "
            "has 1000000 of 5000000 bytes free beside 4000000 of weights");
  budget = Budget();
  budget.memory_fraction = 0.0005;
  const auto none = CountCacheBlocks(budget);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().message(),
            "kv_cache_free_gpu_mem_fraction 0.0005 of 1000000 free bytes is less than one KV "
            "block of 1000 bytes; GPU 3 has 5000000 bytes, the weights take 4000000");
}

}  // namespace
}  // namespace nereid::gpu
