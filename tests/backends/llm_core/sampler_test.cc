// Known answers of the random generator, and each sampling rule on logits that show its effect.
#include "backends/llm_core/sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "backends/llm_core/sampling/philox.h"

namespace nereid::llm {
namespace {

using ::testing::HasSubstr;

// Counts of each id over draws at many positions.
std::map<int32_t, int> Histogram(const std::vector<float>& logits, const SamplingParams& params,
                                 int draws) {
  Sampler sampler;
  std::map<int32_t, int> counts;
  std::vector<int32_t> history;
  for (int i = 0; i < draws; ++i) {
    history.push_back(0);
    std::vector<float> copy = logits;
    ++counts[sampler.Sample(copy, {&params, history, 0, {}}).id];
  }
  return counts;
}

int32_t Greedy(std::vector<float> logits, const SamplingParams& params,
               const std::vector<int32_t>& history, std::span<const int32_t> banned = {}) {
  Sampler sampler;
  return sampler.Sample(logits, {&params, history, 0, banned}).id;
}

TEST(PhiloxTest, GivesThePublishedValues) {
  const auto words = [](const PhiloxBlock& block) {
    return std::vector<uint32_t>(block.words, block.words + 4);
  };
  EXPECT_EQ(words(Philox4x32({{0, 0, 0, 0}}, 0, 0)),
            (std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(Philox4x32({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u)),
            (std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      words(Philox4x32({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0)),
      (std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, UniformsStayInsideTheOpenInterval) {
  float low = 1.0f, high = 0.0f;
  for (uint32_t token = 0; token < 100000; ++token) {
    const float u = TokenUniform(7, 3, token);
    low = std::min(low, u);
    high = std::max(high, u);
  }
  EXPECT_GT(low, 0.0f);
  EXPECT_LT(low, 1e-3f);
  EXPECT_LT(high, 1.0f);
  EXPECT_GT(high, 0.999f);
}

TEST(SamplerTest, IsGreedyUnlessTopKOrTopPIsSet) {
  SamplingParams params;
  EXPECT_EQ(Greedy({1, 5, 5, 2}, params, {0}), 1);  // the lowest of equal ones
  params.top_k = 1;
  params.top_p = 0.9f;
  EXPECT_EQ(Greedy({1, 2, 5, 2}, params, {0}), 2);
  params.top_k = 50;
  params.temperature = 0.0f;
  EXPECT_EQ(Greedy({1, 2, 5, 2}, params, {0}), 2);
}

TEST(SamplerTest, ArgMaxReturnsTheLowestIndexForEveryLengthAndPosition) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kForbidden = -std::numeric_limits<float>::infinity();
  for (const size_t size : {1, 2, 15, 16, 63, 64, 65, 128, 191, 1000}) {
    for (size_t first = 0; first < size; ++first) {
      for (const float other : {-1.0f, kForbidden, kNan}) {
        if (std::isnan(other) && first == 0 && size > 1) continue;  // covered below
        std::vector<float> values(size, other);
        if (first > 0) values[0] = -2.0f;
        for (size_t i = first; i < size; i += 1 + first % 40) values[i] = 3.0f;
        EXPECT_EQ(ArgMax(values), static_cast<int32_t>(first)) << size << " " << other;
      }
    }
    std::vector<float> values(size, kForbidden);
    EXPECT_EQ(ArgMax(values), 0);
    values[0] = kNan;  // nothing is greater
    values.back() = size > 1 ? 7.0f : kNan;
    EXPECT_EQ(ArgMax(values), 0) << size;
  }
}

TEST(SamplerTest, DrawsWithTheProbabilitiesOfTheSoftmax) {
  SamplingParams params;
  params.top_p = 1.0f;
  params.seed = 42;
  const std::vector<float> logits = {std::log(0.1f), std::log(0.2f), std::log(0.3f),
                                     std::log(0.4f)};
  std::map<int32_t, int> counts = Histogram(logits, params, 20000);
  for (int32_t id = 0; id < 4; ++id) EXPECT_NEAR(counts[id] / 20000.0, 0.1 * (id + 1), 0.015);
  params.temperature = 0.5f;  // squares the odds
  counts = Histogram(logits, params, 20000);
  EXPECT_NEAR(counts[3] / 20000.0, 0.16 / 0.30, 0.015);
}

// The sampler computes the noise of few tokens only, and must find the same ones.
TEST(SamplerTest, DrawsTheTokenWithTheGreatestSumOfLogitAndNoise) {
  std::mt19937 random(5);
  for (const float spread : {0.0f, 1.0f, 4.0f, 12.0f}) {
    for (const size_t size : {1u, 3u, 50u, 4097u}) {
      std::uniform_real_distribution<float> uniform(-spread, spread);
      std::vector<float> logits(size);
      for (float& logit : logits) logit = std::round(4.0f * uniform(random)) / 4.0f;  // with ties
      SamplingParams params;
      params.temperature = 0.5f;
      params.top_p = 1.0f;
      for (params.seed = 0; params.seed < 200; ++params.seed) {
        const std::vector<int32_t> tokens(3, 0);
        int32_t expected = 0;
        float best = -1e30f;
        for (size_t i = 0; i < size; ++i) {
          const auto id = static_cast<int32_t>(i);
          const float value = logits[i] * 2.0f + GumbelNoise(params.seed, 3, id);
          if (value > best) {
            best = value;
            expected = id;
          }
        }
        std::vector<float> changed = logits;
        ASSERT_EQ(Sampler().Sample(changed, {&params, tokens, 0, {}}).id, expected)
            << spread << " " << size << " " << params.seed;
      }
    }
  }
}

TEST(SamplerTest, NearTemperatureZeroTheLikeliestTokenIsDrawn) {
  SamplingParams params;
  params.temperature = 1e-38f;
  params.top_p = 1.0f;
  for (const float sign : {1.0f, -1.0f}) {
    for (const int32_t top_k : {0, 3}) {
      params.top_k = top_k;
      std::vector<float> logits = {sign * 8.0f, sign * 8.5f, sign * 8.25f};
      const std::vector<int32_t> tokens(3, 0);
      EXPECT_EQ(Sampler().Sample(logits, {&params, tokens, 0, {}}).id, sign > 0.0f ? 1 : 0);
    }
  }
}

TEST(LogProbsTest, SumOfExponentialsIsThatInDoublePrecision) {
  std::mt19937 random(6);
  for (const float spread : {0.0f, 2.0f, 20.0f, 300.0f}) {
    for (const size_t size : {1u, 15u, 16u, 1000u, 50001u}) {
      std::uniform_real_distribution<float> uniform(-spread, spread);
      std::vector<float> logits(size);
      for (float& logit : logits) logit = uniform(random);
      if (size > 1) logits[1] = -std::numeric_limits<float>::infinity();
      const float max = *std::max_element(logits.begin(), logits.end());
      double sum = 0.0;
      for (const float logit : logits) sum += std::exp(double{logit} - max);
      const double expected = max + std::log(sum);
      EXPECT_NEAR(LogSumExp(logits, max), expected, 3e-7 * (1.0 + std::abs(expected)))
          << spread << " " << size;
    }
  }
}

TEST(SamplerTest, EqualSeedsGiveEqualDrawsAndOtherSeedsOthers) {
  SamplingParams params;
  params.top_k = 100;
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(i));
  const auto draw = [&](uint64_t seed) {
    params.seed = seed;
    Sampler sampler;
    std::vector<int32_t> history;
    for (int i = 0; i < 32; ++i) {
      std::vector<float> copy = logits;
      history.push_back(sampler.Sample(copy, {&params, history, 0, {}}).id);
    }
    return history;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
  EXPECT_NE(draw(1), draw(uint64_t{1} << 32 | 1));
}

TEST(SamplerTest, TopKKeepsTheKMostLikely) {
  SamplingParams params;
  params.top_k = 2;
  const auto counts = Histogram({0.0f, 1.0f, 0.5f, 0.9f}, params, 2000);
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_TRUE(counts.contains(1) && counts.contains(3));
  params.top_k = 100;
  EXPECT_EQ(Histogram({0.0f, 1.0f, 0.5f, 0.9f}, params, 2000).size(), 4u);
}

TEST(SamplerTest, TopPKeepsTheSmallestSetThatReachesP) {
  SamplingParams params;
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f),
                                     std::log(0.05f)};
  params.top_p = 0.5f;
  EXPECT_EQ(Histogram(logits, params, 1000).size(), 1u);
  params.top_p = 0.51f;
  EXPECT_EQ(Histogram(logits, params, 1000).size(), 2u);
  params.top_p = 0.9f;
  EXPECT_EQ(Histogram(logits, params, 4000).size(), 3u);
  params.top_p = 1e-6f;
  EXPECT_EQ(Histogram(logits, params, 1000).size(), 1u);
}

TEST(SamplerTest, TopPAppliesToTheTokensThatTopKKept) {
  SamplingParams params;
  params.top_k = 2;
  params.top_p = 0.62f;  // 0.5 / 0.8 = 0.625 of what top-k leaves
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f),
                                     std::log(0.05f)};
  EXPECT_EQ(Histogram(logits, params, 1000).size(), 1u);
  params.top_p = 0.63f;
  EXPECT_EQ(Histogram(logits, params, 1000).size(), 2u);
}

TEST(SamplerTest, MinPDropsTokensFarBelowTheMostLikely) {
  SamplingParams params;
  params.min_p = 0.4f;
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f),
                                     std::log(0.05f)};
  EXPECT_EQ(Histogram(logits, params, 2000).size(), 2u);
}

TEST(SamplerTest, LogProbsAreThoseOfTheModelBeforeAnyRule) {
  SamplingParams params;
  params.returns_log_probs = true;
  params.embedding_bias = {0.0f, 100.0f};
  std::vector<float> logits = {std::log(0.75f), std::log(0.25f)};
  Sampler sampler;
  const std::vector<int32_t> history = {0};
  const SampledToken token = sampler.Sample(logits, {&params, history, 0, {}});
  EXPECT_EQ(token.id, 1);
  EXPECT_NEAR(token.log_prob, std::log(0.25f), 1e-5f);
}

TEST(SamplerTest, TopTokensAreSortedByLogitAndId) {
  std::vector<SampledToken> top;
  FindTopTokens(std::vector<float>{1, 3, 2, 3, 3, 0}, 4, top);
  ASSERT_EQ(top.size(), 4u);
  const std::vector<int32_t> expected = {1, 3, 4, 2};
  const std::vector<float> logits = {1, 3, 2, 3, 3, 0};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(top[i].id, expected[i]);
    EXPECT_FLOAT_EQ(top[i].log_prob, LogProb(logits, expected[i]));
  }
  FindTopTokens(std::vector<float>{1, 2}, 4, top);
  EXPECT_EQ(top.size(), 2u);
  FindTopTokens(logits, 0, top);
  EXPECT_TRUE(top.empty());
  FindTopTokens({}, 4, top);
  EXPECT_TRUE(top.empty());
}

TEST(SamplerTest, TopPDecaysAndRestartsAfterTheResetId) {
  SamplingParams params;
  params.top_p = 0.8f;
  params.top_p_decay = 0.5f;
  params.top_p_min = 0.3f;
  params.top_p_reset_id = 9;
  EXPECT_FLOAT_EQ(DecayedTopP(params, {}), 0.8f);
  EXPECT_FLOAT_EQ(DecayedTopP(params, std::vector<int32_t>{1}), 0.4f);
  EXPECT_FLOAT_EQ(DecayedTopP(params, std::vector<int32_t>{1, 1}), 0.3f);
  EXPECT_FLOAT_EQ(DecayedTopP(params, std::vector<int32_t>{1, 1, 9}), 0.8f);
}

TEST(SamplerTest, ReturnsNoTokenIfTheRulesBanAll) {
  SamplingParams params;
  params.returns_log_probs = true;
  params.embedding_bias.assign(3, -INFINITY);
  EXPECT_EQ(Greedy({1, 2, 3}, params, {0}), kNoToken);
  params.top_p = 0.9f;
  EXPECT_EQ(Greedy({1, 2, 3}, params, {0}), kNoToken);
  params.top_k = 5;
  EXPECT_EQ(Greedy({1, 2, 3}, params, {0}), kNoToken);
  SamplingParams words;
  words.bad_words = {{0}, {1}, {2}};
  EXPECT_EQ(Greedy({1, 2, 3}, words, {0}), kNoToken);
  words.bad_words.pop_back();
  EXPECT_EQ(Greedy({1, 2, 3}, words, {0}), 2);
}

TEST(SamplingParamsTest, NamesTheParameterAndItsRange) {
  const auto message = [](auto change) {
    SamplingParams params;
    change(params);
    return CheckSamplingParams(params, 10).message();
  };
  EXPECT_EQ(message([](SamplingParams&) {}), "");
  EXPECT_THAT(message([](auto& p) { p.temperature = -1; }), HasSubstr("'temperature' is -1"));
  EXPECT_THAT(message([](auto& p) { p.temperature = NAN; }), HasSubstr("'temperature' is nan"));
  EXPECT_THAT(message([](auto& p) { p.top_k = -2; }), HasSubstr("'runtime_top_k' is -2"));
  EXPECT_THAT(message([](auto& p) { p.top_p = 1.5f; }), HasSubstr("expected 0 to 1"));
  EXPECT_THAT(message([](auto& p) { p.repetition_penalty = 0; }),
              HasSubstr("'repetition_penalty'"));
  EXPECT_THAT(message([](auto& p) { p.embedding_bias.assign(10, INFINITY); }),
              HasSubstr("'embedding_bias' holds inf, expected finite numbers or -inf"));
  EXPECT_EQ(message([](auto& p) { p.embedding_bias.assign(10, -INFINITY); }), "");
  EXPECT_THAT(message([](auto& p) {
                p.logit_bias = {{10, 1.0f}};
              }),
              HasSubstr("'logit_bias_ids' holds token id 10, expected 0 to 9"));
  EXPECT_THAT(message([](auto& p) {
                p.logit_bias = {{1, NAN}};
              }),
              HasSubstr("'logit_bias_values' holds nan, expected finite numbers or -inf"));
  EXPECT_THAT(message([](auto& p) { p.logit_bias.resize(kMaxLogitBias + 1); }),
              HasSubstr("'logit_bias_ids' has 1025 values, expected at most 1024"));
  EXPECT_THAT(message([](auto& p) { p.allowed_ids = {-1}; }),
              HasSubstr("'allowed_token_ids' holds token id -1, expected 0 to 9"));
  EXPECT_THAT(message([](auto& p) { p.allowed_ids.assign(11, 1); }),
              HasSubstr("'allowed_token_ids' has 11 values, expected at most 10"));
  EXPECT_THAT(message([](auto& p) { p.num_top_log_probs = 21; }),
              HasSubstr("'num_top_logprobs' is 21, expected 0 to 10"));
  EXPECT_THAT(message([](auto& p) { p.embedding_bias.assign(11, 1.0f); }),
              HasSubstr("has 11 values, expected at most 10"));
  EXPECT_EQ(message([](auto& p) { p.embedding_bias = {1, 2}; }), "");
  EXPECT_THAT(message([](auto& p) { p.bad_words = {{10}}; }),
              HasSubstr("token id 10, expected 0 to 9"));
}

TEST(SamplingParamsTest, TheErrorForEachNumberNamesItsRange) {
  struct Number {
    const char* name;
    float SamplingParams::*member;
    float least, most;
    const char* range;
  };
  const Number numbers[] = {
      {"temperature", &SamplingParams::temperature, 0, 1e6f, "0 to 1e+06"},
      {"runtime_top_p", &SamplingParams::top_p, 0, 1, "0 to 1"},
      {"min_p", &SamplingParams::min_p, 0, 1, "0 to 1"},
      {"runtime_top_p_decay", &SamplingParams::top_p_decay, 1e-6f, 1, "1e-06 to 1"},
      {"runtime_top_p_min", &SamplingParams::top_p_min, 1e-6f, 1, "1e-06 to 1"},
      {"repetition_penalty", &SamplingParams::repetition_penalty, 1e-6f, 1e6f, "1e-06 to 1e+06"},
      {"presence_penalty", &SamplingParams::presence_penalty, -1e6f, 1e6f, "-1e+06 to 1e+06"},
      {"frequency_penalty", &SamplingParams::frequency_penalty, -1e6f, 1e6f, "-1e+06 to 1e+06"}};
  for (const Number& number : numbers) {
    const auto message = [&](float value) {
      SamplingParams params;
      params.*number.member = value;
      return CheckSamplingParams(params, 10).message();
    };
    EXPECT_EQ(message(number.least), "") << number.name;
    EXPECT_EQ(message(number.most), "") << number.name;
    for (const float value : {number.least - 0.5f, number.most * 2, float{NAN}, float{INFINITY}}) {
      EXPECT_THAT(message(value), ::testing::AllOf(HasSubstr(StrCat("'", number.name, "' is ")),
                                                   HasSubstr(StrCat("expected ", number.range))))
          << value;
    }
  }
}

TEST(SamplerTest, CandidatesAreTheMostLikelyAfterTheRules) {
  SamplingParams params;
  params.temperature = 2.0f;
  params.bad_words = {{3}};
  std::vector<float> logits = {0.0f, 2.0f, 4.0f, 9.0f, 2.0f};
  const std::vector<SampledToken> found = Sampler().Candidates(logits, {&params, {}, 0, {}}, 4);
  ASSERT_EQ(found.size(), 4u);
  const int32_t order[] = {2, 1, 4, 0};
  const double sum = 1.0 + 2 * std::exp(1.0) + std::exp(2.0);
  const double weights[] = {std::exp(2.0), std::exp(1.0), std::exp(1.0), 1.0};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(found[i].id, order[i]);
    EXPECT_NEAR(found[i].log_prob, std::log(weights[i] / sum), 1e-5);
  }
}

TEST(SamplerTest, CandidatesHaveALikeliestTokenAtATemperatureNearZero) {
  SamplingParams params;
  params.temperature = 1e-38f;
  params.top_p = 1.0f;
  for (const float offset : {-10.0f, 10.0f}) {
    std::vector<float> logits = {offset, offset + 2.0f, offset + 1.0f};
    const std::vector<SampledToken> found = Sampler().Candidates(logits, {&params, {}, 0, {}}, 2);
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].id, 1);
    EXPECT_EQ(found[0].log_prob, 0.0f);
    EXPECT_LT(found[1].log_prob, -1e37f);
  }
}

}  // namespace
}  // namespace nereid::llm
