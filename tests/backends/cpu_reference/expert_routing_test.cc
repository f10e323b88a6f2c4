// Which tokens go to which experts.
#include "backends/cpu_reference/model/expert_routing.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nereid::cpu {
namespace {

TEST(ExpertRoutingTest, TheLikeliestExpertsShareAToken) {
  const llm::MoeSpec moe = {.num_experts = 3, .experts_per_token = 2, .normalize_top_k = true};
  const std::vector<float> scores = {0.0f, 2.0f, 1.0f,   // experts 1 and 2
                                     3.0f, 3.0f, 3.0f};  // the first two of equal ones
  const auto tokens_of = RouteTokens(scores, moe);
  ASSERT_EQ(tokens_of[0].size(), 1u);
  ASSERT_EQ(tokens_of[1].size(), 2u);
  ASSERT_EQ(tokens_of[2].size(), 1u);
  EXPECT_EQ(tokens_of[0][0].token, 1);
  EXPECT_FLOAT_EQ(tokens_of[0][0].weight, 0.5f);
  EXPECT_EQ(tokens_of[1][0].token, 0);
  EXPECT_FLOAT_EQ(tokens_of[1][0].weight, 1.0f / (1.0f + std::exp(-1.0f)));
  EXPECT_FLOAT_EQ(tokens_of[1][0].weight + tokens_of[2][0].weight, 1.0f);
}

TEST(ExpertRoutingTest, WithoutNormalizationWeightsAreThoseOfAllExperts) {
  const llm::MoeSpec moe = {.num_experts = 3, .experts_per_token = 1, .normalize_top_k = false};
  const auto tokens_of = RouteTokens(std::vector<float>{1.0f, 1.0f, 1.0f}, moe);
  ASSERT_EQ(tokens_of[0].size(), 1u);
  EXPECT_FLOAT_EQ(tokens_of[0][0].weight, 1.0f / 3.0f);
}

}  // namespace
}  // namespace nereid::cpu
