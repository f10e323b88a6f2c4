#include "base/closest_name.h"

#include <gtest/gtest.h>

namespace nereid {
namespace {

TEST(ClosestNameTest, FindsTheNearestOfSeveral) {
  EXPECT_EQ(ClosestName("max_batch_sizes", {"max_queue_size", "max_batch_size", "name"}),
            "max_batch_size");
  EXPECT_EQ(ClosestName("input_ids", {"INPUT_IDS", "input_lengths"}), "INPUT_IDS");
}

TEST(ClosestNameTest, FindsNothingWhenNothingIsNear) {
  EXPECT_EQ(ClosestName("tokenizer", {"logits", "beam_width"}), "");
  EXPECT_EQ(DidYouMean("X", {"Y"}), "");
}

}  // namespace
}  // namespace nereid
