// Sums and shares of a profile, computed by hand.
#include "backends/gpu_llm/step_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereid::gpu {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr DeviceRoofline kRoof = {4e12, 800e12};

TEST(StepProfileTest, TheRooflineIsTheSlowerOfBytesAndOperations) {
  EXPECT_DOUBLE_EQ(kRoof.Seconds({4e9, 1e9}), 1e-3);
  EXPECT_DOUBLE_EQ(kRoof.Seconds({4e6, 800e9}), 1e-3);
  EXPECT_DOUBLE_EQ(kRoof.Seconds({4e6, 800e9, true}), 0.5e-3);
}

TEST(StepProfileTest, AnOperatorHasItsMeanItsShareAndItsPartOfTheRoofline) {
  StepProfile profile;
  for (int step = 0; step < 2; ++step) {
    profile.AddStep(true, 8);
    for (int layer = 0; layer < 3; ++layer) {
      profile.Add("norm", 10e-6, {4e6, 0.0});       // 400 GB/s, a tenth
      profile.Add("product", 30e-6, {60e6, 12e9});  // 2,000 GB/s, half; 400 TFLOP/s, half
    }
  }
  EXPECT_EQ(profile.num_steps(), 2);
  const std::string table = profile.Table(kRoof);
  EXPECT_THAT(table, HasSubstr("decode steps: 2, 8.0 tokens each, 0.120 ms in operators"));
  EXPECT_THAT(table, ContainsRegex("norm +10.00 +3.0 +25.0 % +400 +0.0 +10.0 %"));
  EXPECT_THAT(table, ContainsRegex("product +30.00 +3.0 +75.0 % +2000 +400.0 +50.0 %"));
  EXPECT_THAT(table, Not(HasSubstr("steps with prompts")));
}

TEST(StepProfileTest, StepsWithPromptsAreListedSeparately) {
  StepProfile profile;
  profile.AddStep(true, 1);
  profile.Add("norm", 1e-6, {1e6, 0.0});
  profile.AddStep(false, 512);
  profile.Add("norm", 100e-6, {1e6, 0.0});
  const std::string table = profile.Table(kRoof);
  EXPECT_THAT(table, HasSubstr("steps with prompts: 1, 512.0 tokens each, 0.100 ms"));
  EXPECT_LT(table.find("decode steps: 1, 1.0"), table.find("steps with prompts"));
}

TEST(StepProfileTest, WithoutStepsTheTableIsEmpty) {
  EXPECT_EQ(StepProfile().Table(kRoof), "");
}

}  // namespace
}  // namespace nereid::gpu
