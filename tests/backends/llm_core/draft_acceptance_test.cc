// Drafts drawn from another distribution than the target's.
#include "backends/llm_core/sampling/draft_acceptance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "backends/llm_core/sampling/sampler.h"

namespace nereid::llm {
namespace {

double ChiSquare(const std::vector<int>& observed, const std::vector<double>& expected) {
  double sum = 0.0;
  for (size_t i = 0; i < observed.size(); ++i) {
    if (expected[i] == 0.0) {
      EXPECT_EQ(observed[i], 0) << i;
      continue;
    }
    sum += (observed[i] - expected[i]) * (observed[i] - expected[i]) / expected[i];
  }
  return sum;
}

// The drafts are drawn from another distribution than the target's.
TEST(DraftAcceptanceTest, VerifiedDraftsKeepTheTargetsDistribution) {
  constexpr int kNumSeeds = 20000;
  const std::vector<float> target = {1.0f, 0.2f, -0.5f, 2.0f, 0.0f, -9.0f};
  const std::vector<float> drafter = {0.5f, 1.5f, 0.5f, 0.0f, -2.0f, 1.0f};
  const TokenIds tokens = {4, 1};
  for (const bool has_limits : {false, true}) {
    SamplingParams params;
    params.top_p = 1.0f;
    params.temperature = has_limits ? 1.0f : 0.8f;
    params.top_k = has_limits ? 3 : 0;
    std::vector<double> expected(target.size());
    double sum = 0.0;
    for (size_t i = 0; i < target.size(); ++i) {
      const bool is_kept = !has_limits || target[i] >= 0.2f;
      sum += expected[i] = is_kept ? std::exp(target[i] / params.temperature) : 0.0;
    }
    for (double& each : expected) each *= kNumSeeds / sum;
    SamplingParams of_drafter;
    of_drafter.top_p = 1.0f;
    std::vector<int> observed(target.size()), accepted(target.size());
    Sampler sampler;
    for (int seed = 0; seed < kNumSeeds; ++seed) {
      std::vector<float> logits = drafter;
      of_drafter.seed = 1000003u + static_cast<uint64_t>(seed);
      const int32_t draft = sampler.Sample(logits, {&of_drafter, tokens, 1, {}}).id;
      logits = target;
      params.seed = static_cast<uint64_t>(seed);
      const int32_t id =
          sampler.Verify(logits, {&params, tokens, 1, {}}, {.id = draft, .logits = drafter}).id;
      ++observed[id];
      if (id == draft) ++accepted[id];
    }
    // 99.9 % of samples are below 20.5 with 5 degrees of freedom.
    EXPECT_LT(ChiSquare(observed, expected), 20.5);
    EXPECT_GT(accepted[0], 0);
  }
}

TEST(DraftAcceptanceTest, AThresholdAcceptsByProbabilitiesAlone) {
  const std::vector<float> drafter = {0.0f, 0.0f, -30.0f};  // 0.5, 0.5
  const TokenIds tokens = {1};
  SamplingParams params;
  params.top_p = 1.0f;
  int num_accepted = 0;
  for (const float threshold : {0.3f, 0.5f}) {
    for (params.seed = 0; params.seed < 50; ++params.seed) {
      std::vector<float> logits = {std::log(0.2f), std::log(0.3f), std::log(0.5f)};
      const DrawnDraft draft = {.id = 0, .logits = drafter, .threshold = threshold};
      const int32_t id = Sampler().Verify(logits, {&params, tokens, 1, {}}, draft).id;
      num_accepted += id == 0 ? 1 : 0;
      if (threshold == 0.5f) {
        EXPECT_EQ(id, 2) << "what the target has in excess";
      }
    }
  }
  EXPECT_EQ(num_accepted, 50);
}

TEST(DraftAcceptanceTest, AGreedyRequestTakesTheMostLikelyTokenWhateverTheDraft) {
  const std::vector<float> drafter = {5.0f, 0.0f, 0.0f};
  SamplingParams params;
  params.temperature = 0.0f;
  std::vector<float> logits = {0.0f, 1.0f, 2.0f};
  EXPECT_EQ(Sampler().Verify(logits, {&params, {}, 0, {}}, {.id = 0, .logits = drafter}).id, 2);
}

// Such quotients overflow. The likeliest token is what is left of the distribution.
TEST(DraftAcceptanceTest, ATemperatureNearZeroLeavesTheLikeliestToken) {
  const std::vector<float> drafter = {1.0f, 0.0f, 0.0f};
  const TokenIds tokens = {1};
  SamplingParams params;
  params.top_p = 0.9f;
  params.temperature = 1e-38f;
  for (const float offset : {-10.0f, 0.0f, 10.0f}) {
    for (const int32_t draft : {0, 2}) {
      std::vector<float> logits = {offset - 2.0f, offset - 1.0f, offset - 0.5f};
      EXPECT_EQ(
          Sampler().Verify(logits, {&params, tokens, 1, {}}, {.id = draft, .logits = drafter}).id,
          2)
          << offset << " " << draft;
    }
  }
}

}  // namespace
}  // namespace nereid::llm
