// Where a reasoning budget replaces tokens.
#include "backends/llm_core/engine/reasoning_budget.h"

#include <gtest/gtest.h>

namespace nereid::llm {
namespace {

TokenIds Output(const ReasoningLimit& limit, const TokenIds& sampled) {
  ReasoningBudget budget(limit);
  TokenIds output;
  for (const int32_t id : sampled) output.push_back(budget.Apply(id));
  return output;
}

TEST(ReasoningBudgetTest, ASpentBudgetEndsTheReasoning) {
  EXPECT_EQ(Output({3, {}, {9}}, {1, 2, 3, 4, 5}), (TokenIds{1, 2, 3, 9, 5}));
  EXPECT_EQ(Output({0, {}, {9}}, {1, 2}), (TokenIds{9, 2}));
  EXPECT_EQ(Output({2, {7, 8}, {9}}, {7, 8, 1, 2, 3, 4}), (TokenIds{7, 8, 1, 2, 9, 4}));
  EXPECT_EQ(Output({1, {}, {9, 8, 7}}, {1, 2, 3, 4, 5}), (TokenIds{1, 9, 8, 7, 5}));
}

TEST(ReasoningBudgetTest, ReasoningThatEndsByItselfIsNotChanged) {
  EXPECT_EQ(Output({3, {}, {9}}, {1, 9, 3, 4, 5, 6}), (TokenIds{1, 9, 3, 4, 5, 6}));
  EXPECT_EQ(Output({4, {}, {9, 9, 8}}, {9, 9, 8, 4, 5, 6}), (TokenIds{9, 9, 8, 4, 5, 6}));
  const TokenIds again = {9, 9, 9, 8, 4, 5, 6, 7};  // the end begins with the second token
  EXPECT_EQ(Output({5, {}, {9, 9, 8}}, again), again);
  EXPECT_EQ(Output({2, {}, {9, 8}}, {1, 9, 3, 4}), (TokenIds{1, 9, 8, 4})) << "the rest of the end";
}

TEST(ReasoningBudgetTest, AnOutputWithoutReasoningIsNotChanged) {
  EXPECT_EQ(Output({0, {7, 8}, {9}}, {7, 1, 2, 3}), (TokenIds{7, 1, 2, 3}));
}

TEST(ReasoningBudgetTest, TellsHowFarTheFirstReplacementIs) {
  const ReasoningLimit limit = {2, {7}, {9}};
  ReasoningBudget budget(limit);
  EXPECT_FALSE(budget.IsDueWithin(3));
  EXPECT_TRUE(budget.IsDueWithin(4));
  for (const int32_t id : {7, 1}) budget.Apply(id);
  EXPECT_FALSE(budget.IsDueWithin(1));
  budget.Apply(2);
  EXPECT_TRUE(budget.IsDueWithin(1));
  EXPECT_EQ(budget.Apply(3), 9);
  EXPECT_TRUE(budget.is_over());
  EXPECT_FALSE(budget.IsDueWithin(100));
}

}  // namespace
}  // namespace nereid::llm
