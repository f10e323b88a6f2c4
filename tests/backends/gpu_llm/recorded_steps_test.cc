// Sizes that are recorded, and sizes whose recording fails.
#include "backends/gpu_llm/recorded_steps.h"

#include <gtest/gtest.h>

#include <memory>

namespace nereid::gpu {
namespace {

TEST(RecordedStepsTest, ARecordedSizeIsFound) {
  RecordedSteps<std::unique_ptr<int>> steps;
  EXPECT_TRUE(steps.IsUntried(8));
  EXPECT_EQ(steps.Find(8), nullptr);
  steps.Keep(8, std::make_unique<int>(5));
  EXPECT_FALSE(steps.IsUntried(8));
  ASSERT_NE(steps.Find(8), nullptr);
  EXPECT_EQ(**steps.Find(8), 5);
  EXPECT_EQ(steps.Find(16), nullptr);
}

TEST(RecordedStepsTest, ASizeIsDueAfterTheRequestedNumberOfSteps) {
  RecordedSteps<int> steps;
  for (int step = 1; step <= 20; ++step) {
    EXPECT_EQ(steps.IsDue(8, 16), step >= 16) << step;
    EXPECT_TRUE(steps.IsDue(1, 1));
  }
  EXPECT_FALSE(steps.IsDue(16, 16));
}

TEST(RecordedStepsTest, ARefusedSizeIsNotTriedAgainAndOthersAre) {
  RecordedSteps<int> steps;
  steps.Keep(1, 7);
  steps.Refuse(8);
  EXPECT_FALSE(steps.IsUntried(8));
  EXPECT_EQ(steps.Find(8), nullptr);
  EXPECT_TRUE(steps.IsUntried(16));
  EXPECT_EQ(*steps.Find(1), 7);
  EXPECT_EQ(steps.num_refused(), 1);
  steps.Refuse(16);
  EXPECT_EQ(steps.num_refused(), 2);
}

// Steps whose recordings must not be mixed, and those that may share one.
TEST(StepKindTest, ShapesThatLaunchOtherKernelsAreOfOtherKinds) {
  StepShape shape;
  shape.num_tokens = shape.num_decode = 4;
  EXPECT_EQ(KindOf(shape, true), StepKind::kPlain);
  EXPECT_EQ(KindOf(shape, false), StepKind::kPlain);
  shape.has_chains = true;
  EXPECT_EQ(KindOf(shape, true), StepKind::kPlain);
  EXPECT_EQ(KindOf(shape, false), StepKind::kChains);
  shape.returns_hidden_states = true;
  EXPECT_EQ(KindOf(shape, true), StepKind::kHiddenStates);
  EXPECT_EQ(KindOf(shape, false), StepKind::kChains);
  shape.has_adapters = true;
  EXPECT_EQ(KindOf(shape, false), StepKind::kAdapterChains);
  shape.has_chains = false;
  EXPECT_EQ(KindOf(shape, false), StepKind::kAdapters);
  shape.has_trees = true;
  EXPECT_EQ(KindOf(shape, false), StepKind::kTrees);
}

}  // namespace
}  // namespace nereid::gpu
