// Copies of blocks hold both blocks until they are done.
#include "backends/llm_core/engine/block_copies.h"

#include <gtest/gtest.h>

namespace nereid::llm {
namespace {

TEST(BlockCopiesTest, BothBlocksAreHeldUntilTheSubmittedCopiesAreDone) {
  BlockPool pool(/*num_blocks=*/4, /*block_size=*/16);
  BlockCopies copies(pool);
  const int32_t from = pool.Allocate();
  const int32_t to = pool.Allocate();
  copies.Add(from, to);
  pool.Release(from);
  pool.Release(to);
  EXPECT_EQ(pool.num_used(), 2);
  copies.FinishSubmitted();  // none was submitted
  EXPECT_EQ(pool.num_used(), 2);
  ASSERT_EQ(copies.Submit().size(), 1u);
  EXPECT_EQ(copies.Submit()[0].from, from);
  copies.FinishSubmitted();
  EXPECT_EQ(pool.num_used(), 0);
  EXPECT_TRUE(copies.Submit().empty());
}

}  // namespace
}  // namespace nereid::llm
