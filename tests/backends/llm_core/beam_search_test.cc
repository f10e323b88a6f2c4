// Compares beam search with the enumeration of all outputs, and tests each rule.
#include "backends/llm_core/engine/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/backends/llm_core/fake_executor.h"

namespace nereid::llm {
namespace {

using testing::LogitsAfter;

constexpr int32_t kBeamVocab = 5;

ExecutorLimits BeamLimits() {
  ExecutorLimits limits;
  limits.vocab_size = kBeamVocab;
  return limits;
}

struct Path {
  TokenIds ids;
  float cum_log_prob = 0.0f;
};

// All outputs of `length` tokens.
std::vector<Path> AllPaths(const TokenIds& prompt, int32_t length) {
  std::vector<Path> paths = {{}};
  for (int32_t step = 0; step < length; ++step) {
    std::vector<Path> longer;
    for (const Path& path : paths) {
      TokenIds tokens = prompt;
      tokens.insert(tokens.end(), path.ids.begin(), path.ids.end());
      const std::vector<float> logits = LogitsAfter(tokens, BeamLimits());
      for (int32_t id = 0; id < kBeamVocab; ++id) {
        Path next = path;
        next.ids.push_back(id);
        next.cum_log_prob += LogProb(logits, id);
        longer.push_back(std::move(next));
      }
    }
    paths = std::move(longer);
  }
  std::stable_sort(paths.begin(), paths.end(),
                   [](const Path& a, const Path& b) { return a.cum_log_prob > b.cum_log_prob; });
  return paths;
}

// Runs a search over the model of the fake executor, without an engine.
std::vector<BeamHypothesis> Search(const TokenIds& prompt, const BeamParams& params,
                                   const StopCriteria& stop) {
  struct Beam {
    TokenIds ids;
    std::vector<float> log_probs;
    float cum_log_prob = 0.0f;
  };
  BeamSearch search(params, stop);
  std::vector<Beam> beams = {{}};
  while (true) {
    std::vector<std::vector<SampledToken>> candidates;
    for (const Beam& beam : beams) {
      TokenIds tokens = prompt;
      tokens.insert(tokens.end(), beam.ids.begin(), beam.ids.end());
      std::vector<float> logits = LogitsAfter(tokens, BeamLimits());
      const SamplingParams sampling;
      candidates.push_back(Sampler().Candidates(logits, {&sampling, tokens, 0, {}},
                                                BeamSearch::NumCandidates(params, stop)));
    }
    std::vector<BeamView> views;
    for (size_t i = 0; i < beams.size(); ++i) {
      views.push_back({beams[i].ids, beams[i].log_probs, beams[i].cum_log_prob, candidates[i]});
    }
    const std::vector<BeamContinuation> next = search.Advance(views);
    if (next.empty()) return search.finished();
    std::vector<Beam> moved;
    for (const BeamContinuation& continuation : next) {
      Beam beam = beams[continuation.parent];
      beam.ids.push_back(continuation.token.id);
      beam.log_probs.push_back(continuation.token.log_prob);
      beam.cum_log_prob = continuation.cum_log_prob;
      moved.push_back(std::move(beam));
    }
    beams = std::move(moved);
  }
}

TEST(BeamSearchTest, AWideSearchFindsTheMostLikelyOfAllOutputs) {
  StopCriteria stop;
  stop.max_tokens = 4;
  const TokenIds prompt = {1, 2, 3};
  const std::vector<BeamHypothesis> found = Search(prompt, {.width = 125}, stop);
  const std::vector<Path> all = AllPaths(prompt, 4);
  ASSERT_EQ(found.size(), 125u);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].ids, all[i].ids) << i;
    EXPECT_NEAR(found[i].cum_log_prob, all[i].cum_log_prob, 1e-4f);
    EXPECT_EQ(found[i].finish, FinishReason::kLength);
  }
}

TEST(BeamSearchTest, AnEndIdFinishesABeamAndIsNotEmitted) {
  StopCriteria stop;
  stop.max_tokens = 6;
  stop.end_ids = {0};
  bool any_stopped = false;
  for (int32_t first = 0; first < 5; ++first) {
    const BeamParams params = {.width = 4, .early_stopping = false};
    const std::vector<BeamHypothesis> found = Search({first, 3}, params, stop);
    ASSERT_EQ(found.size(), 4u);
    for (size_t i = 0; i < found.size(); ++i) {
      if (i > 0) {
        EXPECT_LE(found[i].score, found[i - 1].score);
      }
      EXPECT_EQ(std::count(found[i].ids.begin(), found[i].ids.end(), 0), 0);
      EXPECT_EQ(found[i].ids.size(), found[i].log_probs.size());
      any_stopped |= found[i].finish == FinishReason::kStop;
    }
  }
  EXPECT_TRUE(any_stopped);
}

TEST(BeamSearchTest, TheLengthPenaltyDecidesBetweenShortAndLong) {
  // One beam of two tokens is finished. A longer one has a lower total probability, but a higher
  // one per token.
  const auto best = [](float penalty) {
    StopCriteria stop;
    stop.max_tokens = 3;
    stop.end_ids = {0};
    BeamSearch search({.width = 2, .length_penalty = penalty, .early_stopping = false}, stop);
    const std::vector<SampledToken> start = {{0, -1.0f}, {1, -1.1f}, {2, -9.0f}, {3, -9.5f}};
    std::vector<BeamView> views = {{{}, {}, 0.0f, start}};
    std::vector<BeamContinuation> next = search.Advance(views);
    const std::vector<SampledToken> follow = {{2, -0.2f}, {3, -8.0f}, {4, -8.0f}, {0, -8.5f}};
    std::vector<TokenIds> outputs;
    while (!next.empty()) {
      std::vector<TokenIds> longer;
      std::vector<float> sums;
      for (const BeamContinuation& beam : next) {
        TokenIds ids = outputs.empty() ? TokenIds() : outputs[beam.parent];
        ids.push_back(beam.token.id);
        longer.push_back(std::move(ids));
        sums.push_back(beam.cum_log_prob);
      }
      outputs = std::move(longer);
      views.clear();
      for (size_t i = 0; i < outputs.size(); ++i)
        views.push_back({outputs[i], {}, sums[i], follow});
      next = search.Advance(views);
    }
    return search.finished()[0].ids;
  };
  EXPECT_EQ(best(0.0f), TokenIds());           // the end id at once: -1.0
  EXPECT_EQ(best(1.0f), (TokenIds{1, 2, 2}));  // -1.5 / 3
}

TEST(BeamSearchTest, EarlyStoppingEndsWithAsManyOutputsAsBeams) {
  StopCriteria stop;
  stop.max_tokens = 10;
  stop.end_ids = {0, 1};
  const std::vector<SampledToken> start = {{0, -1.0f}, {1, -1.5f}, {2, -1.6f}, {3, -1.7f}};
  const std::vector<BeamView> views = {{{}, {}, 0.0f, start}};
  BeamSearch early({.width = 2, .early_stopping = true}, stop);
  EXPECT_TRUE(early.Advance(views).empty());
  // Without early stopping, the most likely candidate of the step decides, although it ended: -1.0
  // beats -1.5.
  BeamSearch patient({.width = 2, .length_penalty = 0.0f, .early_stopping = false}, stop);
  ASSERT_EQ(patient.Advance(views).size(), 2u);
  const std::vector<int32_t> second = {2}, third = {3};
  const std::vector<float> second_log = {-1.6f}, third_log = {-1.7f};
  const std::vector<SampledToken> after = {{2, -0.1f}, {3, -0.2f}, {4, -0.3f}, {5, -0.4f}};
  const std::vector<BeamView> worse = {{second, second_log, -1.6f, after},
                                       {third, third_log, -1.7f, after}};
  EXPECT_TRUE(patient.Advance(worse).empty());  // -1.7 can only get worse
  const std::vector<SampledToken> close = {{0, -1.0f}, {2, -1.1f}, {1, -1.2f}, {3, -1.3f}};
  const std::vector<BeamView> open = {{{}, {}, 0.0f, close}};
  BeamSearch going({.width = 2, .early_stopping = true}, stop);
  EXPECT_EQ(going.Advance(open).size(), 2u);  // the rank of the second end is beyond the two beams
}

TEST(BeamSearchTest, DiversityMakesBeamsComeFromDifferentParents) {
  StopCriteria stop;
  stop.max_tokens = 10;
  const std::vector<SampledToken> rich = {{1, -0.1f}, {2, -0.2f}, {3, -5.0f}, {4, -5.0f}};
  const std::vector<SampledToken> poor = {{1, -0.6f}, {2, -0.7f}, {3, -5.0f}, {4, -5.0f}};
  const TokenIds one = {1}, two = {2};
  const std::vector<BeamView> views = {{one, {}, 0.0f, rich}, {two, {}, 0.0f, poor}};
  BeamSearch plain({.width = 2}, stop);
  auto next = plain.Advance(views);
  EXPECT_EQ(next[0].parent, 0);
  EXPECT_EQ(next[1].parent, 0);
  BeamSearch diverse({.width = 2, .diversity_rate = 1.0f}, stop);
  next = diverse.Advance(views);
  EXPECT_EQ(next[0].parent, 0);
  EXPECT_EQ(next[1].parent, 1);
  // The penalty affects the choice, but not cum_log_prob.
  EXPECT_FLOAT_EQ(next[1].cum_log_prob, -0.6f);
}

}  // namespace
}  // namespace nereid::llm
