// When sequences end, and which tokens are visible before.
#include "backends/llm_core/engine/stop_criteria.h"

#include <gtest/gtest.h>

namespace nereid::llm {
namespace {

StopCriteria Rules(std::vector<TokenIds> stop_words, int32_t min_tokens = 0) {
  StopCriteria rules;
  rules.max_tokens = 10;
  rules.min_tokens = min_tokens;
  rules.end_ids = {100, 101};
  rules.stop_words = std::move(stop_words);
  return rules;
}

void Expect(const StopCriteria& rules, const TokenIds& output, FinishReason finish,
            int32_t visible) {
  const StopResult verdict = CheckStop(rules, output);
  EXPECT_EQ(verdict.finish, finish);
  EXPECT_EQ(verdict.num_visible, visible);
}

TEST(StopCriteriaTest, AnyEndIdEndsTheSequenceAndIsNotVisible) {
  Expect(Rules({}), {1, 2}, FinishReason::kNone, 2);
  Expect(Rules({}), {1, 2, 101}, FinishReason::kStop, 2);
  Expect(Rules({}), {100}, FinishReason::kStop, 0);
}

TEST(StopCriteriaTest, TheTokenLimitEndsTheSequence) {
  Expect(Rules({}), TokenIds(10, 1), FinishReason::kLength, 10);
}

TEST(StopCriteriaTest, ACompletedStopWordIsCutOff) {
  Expect(Rules({{7}}), {1, 7}, FinishReason::kStop, 1);
  Expect(Rules({{5, 6, 7}}), {1, 5, 6, 7}, FinishReason::kStop, 1);
  Expect(Rules({{6, 7}, {5, 6, 7}}), {1, 5, 6, 7}, FinishReason::kStop, 1);  // the longest
}

TEST(StopCriteriaTest, TokensThatMayBeginAStopWordAreHeldBack) {
  const StopCriteria rules = Rules({{5, 6, 7}});
  Expect(rules, {1, 5}, FinishReason::kNone, 1);
  Expect(rules, {1, 5, 6}, FinishReason::kNone, 1);
  Expect(rules, {1, 5, 6, 8}, FinishReason::kNone, 4);
  Expect(rules, {1, 5, 5}, FinishReason::kNone, 2);
  Expect(Rules({{5, 5, 6}}), {5, 5, 5}, FinishReason::kNone, 1);
  // At the end, held back tokens become visible.
  Expect(rules, {1, 1, 1, 1, 1, 1, 1, 1, 5, 6}, FinishReason::kLength, 10);
  Expect(rules, {1, 5, 100}, FinishReason::kStop, 2);
}

TEST(StopCriteriaTest, NothingEndsBeforeMinTokens) {
  Expect(Rules({{7}}, 2), {1, 7}, FinishReason::kNone, 2);
  Expect(Rules({{7}}, 2), {1, 1, 7}, FinishReason::kStop, 2);
  Expect(Rules({}, 2), {1, 1, 100}, FinishReason::kStop, 2);
}

TEST(StopCriteriaTest, AResultNamesWhatEndedTheSequence) {
  const StopCriteria rules = Rules({{6, 7}, {5, 6, 7}});
  EXPECT_EQ(CheckStop(rules, TokenIds{1, 101}).end_id, 101);
  EXPECT_EQ(CheckStop(rules, TokenIds{1, 101}).stop_word, -1);
  EXPECT_EQ(CheckStop(rules, TokenIds{5, 6, 7}).stop_word, 1);
  EXPECT_EQ(CheckStop(rules, TokenIds{1, 6, 7}).stop_word, 0);
  EXPECT_EQ(CheckStop(rules, TokenIds{1, 6, 7}).end_id, -1);
  EXPECT_EQ(CheckStop(rules, TokenIds(10, 1)).end_id, -1);
}

TEST(StopCriteriaTest, WhatEndsTheSequenceIsVisibleIfItIsIncluded) {
  StopCriteria rules = Rules({{5, 6, 7}});
  rules.includes_stop = true;
  Expect(rules, {1, 5}, FinishReason::kNone, 2);  // nothing needs to be held back
  Expect(rules, {1, 5, 6, 7}, FinishReason::kStop, 4);
  Expect(rules, {1, 101}, FinishReason::kStop, 2);
}

TEST(StopCriteriaTest, EmptyStopWordsStopNothing) {
  Expect(Rules({{}}), {1, 2}, FinishReason::kNone, 2);
}

}  // namespace
}  // namespace nereid::llm
