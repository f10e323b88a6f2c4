// How long trials of drafts and the rests between them are.
#include "backends/llm_core/engine/draft_trials.h"

#include <gtest/gtest.h>

#include <vector>

namespace nereid::llm {
namespace {

class HeadDrafter : public Drafter {
 public:
  explicit HeadDrafter(bool drafts_trees) : drafts_trees_(drafts_trees) {}
  std::string_view name() const override { return "head"; }
  bool proposes_trees() const override { return drafts_trees_; }
  bool reads_hidden_states() const override { return true; }
  void Propose(std::span<DraftQuery> /*queries*/) override {}

 private:
  const bool drafts_trees_;
};

// Steps of a trial of one sequence with two drafts each, of which so many are accepted in turn,
// until the next one would not be due.
int NumTrialSteps(DraftTrials& trials, const std::vector<int32_t>& accepted) {
  for (int num_steps = 0;; ++num_steps) {
    trials.BeginPlan(1, false);
    if (!trials.is_due() || num_steps == 100) return num_steps;
    trials.BeginTrial();
    const int32_t num_accepted = accepted[static_cast<size_t>(num_steps) % accepted.size()];
    trials.RecordDrafted(2, num_accepted);
    trials.RecordOutcome(2, num_accepted);
  }
}

int NumPlainStepsUntilDue(DraftTrials& trials) {
  int num_steps = 0;
  for (; !trials.is_due(); ++num_steps) trials.RecordPlain();
  return num_steps;
}

TEST(DraftTrialsTest, ATrialOfChainsEndsWhenItsOutcomesTellEnough) {
  const HeadDrafter drafter(false);
  DraftTrials in_vain(&drafter, true);
  EXPECT_EQ(NumTrialSteps(in_vain, {0}), 6);
  EXPECT_EQ(NumPlainStepsUntilDue(in_vain), DraftTrials::kStepsBetween);
  DraftTrials mixed(&drafter, true);
  EXPECT_EQ(NumTrialSteps(mixed, {1, 0, 0}), 9) << "12 outcomes, a quarter of them accepted";
  DraftTrials promising(&drafter, true);
  EXPECT_EQ(NumTrialSteps(promising, {1}), 24) << "48 outcomes, half of them accepted";
  DraftTrials all(&drafter, true);
  EXPECT_EQ(NumTrialSteps(all, {2}), 100) << "goes on while all are accepted";
}

TEST(DraftTrialsTest, RestsGrowAndHiddenStatesAreReadAtTheirEnds) {
  const HeadDrafter drafter(true);
  DraftTrials trials(&drafter, true);
  EXPECT_EQ(trials.BeginPlan(50, false), 50u);
  for (int i = 0; i < DraftTrials::kStepsBetween; ++i) trials.RecordPlain();
  EXPECT_TRUE(trials.is_resting());
  for (const int expected : {64, 128, 256, 512, 1024, 1024}) {
    int num_read = 0;
    for (; trials.MustReadFirst(); ++num_read) {
      EXPECT_EQ(trials.BeginPlan(50, false), 4u);
      trials.RecordPlain();
    }
    EXPECT_EQ(num_read, 16);
    EXPECT_EQ(NumTrialSteps(trials, {0}), 1) << "a tree is one step";
    EXPECT_EQ(trials.BeginPlan(50, false), 0u);
    EXPECT_EQ(NumPlainStepsUntilDue(trials), expected);
  }
  trials.EndRest();
  EXPECT_EQ(trials.BeginPlan(50, false), 50u);
  EXPECT_EQ(trials.BeginPlan(50, true), 0u) << "too many sequences";
  EXPECT_TRUE(trials.is_resting());
}

}  // namespace
}  // namespace nereid::llm
