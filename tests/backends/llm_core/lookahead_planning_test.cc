// How many drafts of lookahead decoding are verified: simulated steps with a simulated target.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "backends/llm_core/engine/draft_planner.h"
#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/speculation/draft_tree.h"
#include "backends/llm_core/speculation/lookahead_drafter.h"
#include "tests/support/sanitizer.h"

namespace nereid::llm {
namespace {

// Samples the token behind `tokens`.
using SimulatedTarget = std::function<int32_t(std::span<const int32_t> tokens)>;
// The seconds of a step of so many tokens.
using CostFunction = double (*)(int32_t num_tokens);

double OfOneProcessor(int32_t num_tokens) {
  return 0.001 + 0.0009 * num_tokens;
}
double OfOneGpu(int32_t num_tokens) {
  return 0.005 + 0.00003 * num_tokens;
}
// Nearly free tokens.
double OfAWideGpu(int32_t num_tokens) {
  return 0.005 + 0.000002 * num_tokens;
}

int32_t Hash(std::span<const int32_t> tokens) {
  uint32_t hash = 17;
  for (const int32_t token : tokens) hash = (hash ^ static_cast<uint32_t>(token)) * 0x01000193u;
  return static_cast<int32_t>((hash >> 8) & 0xffff);
}
// Hardly predictable.
int32_t NextAtRandom(std::span<const int32_t> tokens) {
  return Hash(tokens.last(std::min<size_t>(5, tokens.size()))) % 4000;
}
int32_t NextInCycle(std::span<const int32_t> tokens) {
  return (tokens.back() + 1) % 50;
}
// Phrases of four tokens. Which one comes next is not predictable, but all can be learned, by a
// window sooner than from the output.
int32_t NextOfPhrase(std::span<const int32_t> tokens) {
  const int32_t last = tokens.back();
  return last % 4 != 3 ? last + 1 : Hash(tokens.last(std::min<size_t>(9, tokens.size()))) % 500 * 4;
}

class LookaheadSimulation {
 public:
  LookaheadSimulation(const LookaheadSizes& sizes, CostFunction cost, SimulatedTarget target,
                      int32_t num_sequences)
      : cost_(cost), target_(std::move(target)) {
    SpeculationOptions options;
    options.drafter = std::make_shared<LookaheadDrafter>(sizes);
    options.max_draft_tokens = static_cast<int32_t>(sizes.num_drafts());
    options.verifies_trees = true;
    planner_ =
        std::make_unique<DraftPlanner>(options, true, TypicalCosts(), [this] { return now_; });
    for (int32_t i = 0; i < num_sequences; ++i) {
      auto request = std::make_unique<GenerationRequest>();
      for (int32_t token = 0; token < 20; ++token) request->prompt.push_back(37 * i + 8 * token);
      running_.push_back(MakeSequences(std::move(request)));
      planner_->Add(*running_[i]);
      running_[i]->num_max_tokens = 1 << 30;
      running_[i]->num_cached = 19;
    }
  }

  // Returns the tokens a second, in units of those without drafts.
  double Run(int num_steps) {
    const auto num_sequences = static_cast<int32_t>(running_.size());
    const double first = now_;
    int64_t num_tokens = 0;
    for (int step = 0; step < num_steps; ++step) {
      const double began = now_;
      planner_->Plan(running_);
      int32_t num_drafts = 0, num_accepted = 0;
      for (const auto& sequence : running_) {
        num_drafts += sequence->num_drafts;
        num_whole_ += sequence->num_drafts > sequence->drafts->num_direct ? 1 : 0;
      }
      now_ += cost_(num_sequences + num_drafts);
      StepResult result;
      for (const auto& sequence : running_) Verify(*sequence, result);
      for (const auto& accepted : result.accepted) {
        num_accepted += static_cast<int32_t>(accepted.size());
      }
      planner_->RecordStep({num_sequences, num_drafts, num_accepted, now_ - began});
      for (size_t i = 0; i < running_.size(); ++i) Apply(*running_[i], i, result);
      num_tokens += num_sequences + num_accepted;
    }
    const double plain = num_sequences / cost_(num_sequences);
    return static_cast<double>(num_tokens) / (now_ - first) / plain;
  }

  // Trees that were verified with drafts of the window.
  int64_t num_whole() const { return num_whole_; }

 private:
  // Samples behind the newest token and all drafts, and accepts those that were sampled.
  void Verify(const Sequence& sequence, StepResult& result) const {
    const auto drafts = std::span(sequence.drafts->ids).first(sequence.num_drafts);
    const std::span<const int32_t> parents = sequence.drafts->parents;
    std::vector<int32_t>& rows = result.row_tokens.emplace_back();
    std::vector<int32_t> path;
    for (int32_t draft = kTreeRoot; draft < static_cast<int32_t>(drafts.size()); ++draft) {
      TokenIds tokens = sequence.token_ids;
      FindPath(parents, draft, path);
      for (const int32_t each : path) tokens.push_back(drafts[each]);
      rows.push_back(target_(tokens));
    }
    std::vector<SampledToken>& accepted = result.accepted.emplace_back();
    std::vector<int32_t>& indices = result.accepted_drafts.emplace_back();
    int32_t at = kTreeRoot;
    while ((at = FindChild(drafts, parents, at, rows[at + 1])) != kNoChild) {
      accepted.push_back({.id = drafts[at]});
      indices.push_back(at);
    }
    result.tokens.push_back({.id = rows[indices.empty() ? 0 : indices.back() + 1]});
  }

  void Apply(Sequence& sequence, size_t i, const StepResult& result) {
    if (sequence.num_drafts > 0) {
      planner_->RecordVerified(sequence, std::exchange(sequence.num_drafts, 0), i, result);
    } else {
      planner_->RecordUnverified(sequence, result.tokens[i].id);
    }
    for (const SampledToken& token : result.accepted[i]) sequence.token_ids.push_back(token.id);
    sequence.token_ids.push_back(result.tokens[i].id);
    sequence.num_cached = sequence.num_tokens() - 1;
  }

  const CostFunction cost_;
  const SimulatedTarget target_;
  double now_ = 1.0;
  int64_t num_whole_ = 0;
  std::unique_ptr<DraftPlanner> planner_;
  std::vector<std::unique_ptr<Sequence>> running_;
};

constexpr LookaheadSizes kSmall = {4, 3, 4};
constexpr LookaheadSizes kLarge = {15, 5, 15};

TEST(LookaheadPlanningTest, IsNotSlowerThanWithoutDrafts) {
  for (const LookaheadSizes& sizes : {kSmall, kLarge}) {
    for (const CostFunction cost : {OfOneProcessor, OfOneGpu}) {
      for (const SimulatedTarget& target :
           {SimulatedTarget(NextAtRandom), SimulatedTarget(NextOfPhrase),
            SimulatedTarget(NextInCycle)}) {
        for (const int32_t num_sequences : {1, 8, 32}) {
          if (kHasSanitizer && num_sequences > 1) continue;  // slow, and nothing new to find
          LookaheadSimulation simulation(sizes, cost, target, num_sequences);
          EXPECT_GE(simulation.Run(1500), 0.985) << num_sequences;
        }
      }
    }
  }
}

TEST(LookaheadPlanningTest, VerifiesNgramsWithoutAWindowThatWouldNotPay) {
  LookaheadSimulation simulation(kSmall, OfOneProcessor, NextInCycle, 1);
  simulation.Run(300);
  EXPECT_GT(simulation.Run(300), 1.03);
}

TEST(LookaheadPlanningTest, RunsTheWindowWhereItsDraftsCostLittle) {
  LookaheadSimulation cycle(kSmall, OfOneGpu, NextInCycle, 1);
  cycle.Run(200);
  EXPECT_GT(cycle.Run(300), 2.5);
  LookaheadSimulation phrases(kLarge, OfAWideGpu, NextOfPhrase, 1);
  constexpr LookaheadSizes kNarrow = {1, kLarge.ngram_size, kLarge.verification_set_size};
  LookaheadSimulation narrow(kNarrow, OfAWideGpu, NextOfPhrase, 1);
  EXPECT_GT(phrases.Run(500), 1.4 * narrow.Run(500)) << "a window learns phrases sooner";
  EXPECT_GT(phrases.num_whole(), 200);
  LookaheadSimulation costly(kLarge, OfOneProcessor, NextOfPhrase, 1);
  costly.Run(500);
  EXPECT_LT(costly.num_whole(), 10);
}

}  // namespace
}  // namespace nereid::llm
