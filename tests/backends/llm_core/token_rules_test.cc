// Each rule on logits that show its effect.
#include "backends/llm_core/sampling/token_rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backends/llm_core/sampling/sampler.h"

namespace nereid::llm {
namespace {

int32_t Choice(std::vector<float> logits, const SamplingParams& params,
               const std::vector<int32_t>& history, std::span<const int32_t> banned = {}) {
  Sampler sampler;
  return sampler.Sample(logits, {&params, history, 0, banned}).id;
}

TEST(TokenRulesTest, RepetitionPenaltyDividesPositiveAndMultipliesNegativeLogits) {
  SamplingParams params;
  params.repetition_penalty = 2.0f;
  EXPECT_EQ(Choice({4.0f, 3.0f}, params, {0}), 1);
  EXPECT_EQ(Choice({-1.0f, -1.5f}, params, {0}), 1);
  EXPECT_EQ(Choice({8.0f, 3.0f}, params, {0}), 0);
}

TEST(TokenRulesTest, PresenceCountsOnceFrequencyEachTime) {
  SamplingParams params;
  params.presence_penalty = 1.0f;
  EXPECT_EQ(Choice({4.0f, 2.5f}, params, {0, 0, 0}), 0);
  params.presence_penalty = 0.0f;
  params.frequency_penalty = 1.0f;
  EXPECT_EQ(Choice({4.0f, 2.5f}, params, {0, 0, 0}), 1);
  EXPECT_EQ(Choice({4.0f, 2.5f}, params, {0}), 0);
  params.frequency_penalty = -1.0f;
  EXPECT_EQ(Choice({2.0f, 2.5f}, params, {0}), 0);
}

TEST(TokenRulesTest, PenaltiesDoNotCountTheIgnoredTokensOfThePrompt) {
  SamplingParams params;
  params.presence_penalty = 5.0f;
  Sampler sampler;
  const std::vector<int32_t> history = {0, 1};
  const auto next = [&] {
    std::vector<float> logits = {3.0f, 2.0f, 1.0f};
    return sampler.Sample(logits, {&params, history, 2, {}}).id;
  };
  EXPECT_EQ(next(), 2);
  params.prompt_ignore_length = 1;
  EXPECT_EQ(next(), 0);
  params.prompt_ignore_length = 100;  // more than there are
  EXPECT_EQ(next(), 0);
}

TEST(TokenRulesTest, BiasBadWordsAndBansMoveTheChoice) {
  SamplingParams params;
  params.embedding_bias = {0.0f, 0.0f, 10.0f};
  EXPECT_EQ(Choice({4.0f, 3.0f, 0.0f}, params, {0}), 2);
  params.bad_words = {{2}};
  EXPECT_EQ(Choice({4.0f, 3.0f, 0.0f}, params, {0}), 0);
  params.bad_words = {{2}, {1, 0}};  // 0 may not follow 1
  EXPECT_EQ(Choice({4.0f, 3.0f, 0.0f}, params, {1}), 1);
  EXPECT_EQ(Choice({4.0f, 3.0f, 0.0f}, params, {2}), 0);
  const std::vector<int32_t> banned = {0};
  EXPECT_EQ(Choice({4.0f, 3.0f, 0.0f}, SamplingParams(), {2}, banned), 1);
}

TEST(TokenRulesTest, LogitBiasChangesTheTokensItNames) {
  SamplingParams params;
  params.logit_bias = {{2, 3.0f}, {2, 1.5f}, {1, -INFINITY}};
  EXPECT_EQ(Choice({1, 5, 1, 5}, params, {0}), 2);
  params.logit_bias = {{1, -INFINITY}};
  EXPECT_EQ(Choice({1, 5, 1, 4}, params, {0}), 3);
}

TEST(TokenRulesTest, TheMaskOfAGrammarBansAllOtherTokens) {
  std::vector<float> logits(70);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i);
  const std::vector<uint32_t> mask = {1u << 5, 1u << 9, 0};  // the ids 5 and 41
  SamplingParams params;
  params.returns_log_probs = true;
  const std::vector<int32_t> history = {1}, banned = {41};
  const float expected = LogProb(logits, 41);
  Sampler sampler;
  std::vector<float> copy = logits;
  const SampledToken token = sampler.Sample(copy, {&params, history, 0, {}, mask});
  EXPECT_EQ(token.id, 41);
  EXPECT_FLOAT_EQ(token.log_prob, expected);  // of the model's own distribution
  copy = logits;
  EXPECT_EQ(sampler.Sample(copy, {&params, history, 0, banned, mask}).id, 5);
  params.allowed_ids = {41, 69};
  copy = logits;
  EXPECT_EQ(sampler.Sample(copy, {&params, history, 0, banned, mask}).id, kNoToken);
}

TEST(TokenRulesTest, OnlyAllowedTokensAreSampled) {
  SamplingParams params;
  params.allowed_ids = {3, 0, 3};
  EXPECT_EQ(Choice({1, 5, 1, 4}, params, {0}), 3);
  const std::vector<int32_t> banned = {3};
  EXPECT_EQ(Choice({1, 5, 1, 4}, params, {0}, banned), 0);
  params.top_p = 1.0f;
  for (params.seed = 0; params.seed < 200; ++params.seed) {
    EXPECT_EQ(Choice({1, 5, 1, 1}, params, {0}) % 3, 0);
  }
  params.allowed_ids = {3};
  params.logit_bias = {{3, -INFINITY}};
  EXPECT_EQ(Choice({1, 5, 1, 4}, params, {0}), kNoToken);
}

TEST(TokenRulesTest, BansRepeatedNgrams) {
  SamplingParams params;
  params.no_repeat_ngram_size = 3;
  const TokenIds tokens = {1, 2, 3, 0, 1, 2};  // 3 would complete a second 1 2 3
  std::vector<float> logits = {0.0f, 1.0f, 2.0f, 9.0f, 3.0f};
  EXPECT_EQ(Sampler().Sample(logits, {&params, tokens, 2, {}}).id, 4);
  params.no_repeat_ngram_size = 1;  // no token may occur twice
  logits = {9.0f, 9.0f, 9.0f, 9.0f, 0.0f};
  EXPECT_EQ(Sampler().Sample(logits, {&params, tokens, 2, {}}).id, 4);
  params.no_repeat_ngram_size = 7;  // longer than the sequence
  logits = {0.0f, 1.0f, 2.0f, 9.0f, 3.0f};
  EXPECT_EQ(Sampler().Sample(logits, {&params, tokens, 2, {}}).id, 3);
}

// Chi-square: the sum over tokens of (observed - expected)^2 / expected.

}  // namespace
}  // namespace nereid::llm
