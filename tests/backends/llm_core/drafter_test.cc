// What the drafters without weights propose, and when drafts are worth a step.
#include <gtest/gtest.h>

#include <random>

#include "backends/llm_core/engine/draft_planner.h"
#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/sampling/sampling_params.h"
#include "backends/llm_core/speculation/lookup_drafters.h"

namespace nereid::llm {
namespace {

TokenIds ProposalOf(Drafter& drafter, const TokenIds& tokens, int32_t max_drafts = 4) {
  std::unique_ptr<DrafterState> state;
  TokenIds drafts;
  DraftQuery query = {
      .tokens = tokens, .max_drafts = max_drafts, .state = &state, .drafts = &drafts};
  drafter.Propose(std::span(&query, 1));
  return drafts;
}

TEST(NgramDrafterTest, ProposesWhatFollowedTheSameTokens) {
  NgramDrafter drafter;
  EXPECT_EQ(ProposalOf(drafter, {1, 2, 3, 4, 5, 9, 1, 2, 3}), (TokenIds{4, 5, 9, 1}));
  EXPECT_EQ(ProposalOf(drafter, {1, 2, 3, 4, 5, 9, 1, 2, 3}, 1), (TokenIds{4}));
  EXPECT_EQ(ProposalOf(drafter, {7, 1, 2, 3, 9, 1, 2, 8, 7, 1, 2}), (TokenIds{3, 9, 1, 2}))
      << "of the longest run";
  EXPECT_EQ(ProposalOf(drafter, {1, 2, 3, 9, 1, 2, 8, 7, 1, 2}), (TokenIds{8, 7, 1, 2}))
      << "of equal runs, the newest";
  EXPECT_TRUE(ProposalOf(drafter, {1, 2, 3, 4, 5}).empty());
  EXPECT_TRUE(ProposalOf(drafter, {1}).empty());
  EXPECT_EQ(ProposalOf(drafter, {6, 6, 6}), (TokenIds{6}));
}

TEST(SuffixDrafterTest, EndsWhereTheOccurrencesDisagree) {
  SuffixDrafter drafter;
  EXPECT_EQ(ProposalOf(drafter, {1, 2, 3, 4, 5, 9, 1, 2, 3}), (TokenIds{4, 5, 9, 1}));
  EXPECT_EQ(ProposalOf(drafter, {1, 2, 5, 1, 0, 1, 2, 5, 2, 0, 1, 2, 5, 3, 0, 1, 2}),
            (TokenIds{5}));
  EXPECT_EQ(ProposalOf(drafter, {1, 2, 7, 0, 1, 2, 7, 3, 1, 2, 8, 4, 1, 2}).front(), 7);
  EXPECT_TRUE(ProposalOf(drafter, {1, 2, 3, 4, 5}).empty());
}

TEST(TokenMatchesTest, FindsTheSameAsASearchThroughAllTokens) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    TokenMatches index;
    TokenIds tokens;
    std::vector<TokenMatch> matches;
    for (int i = 0; i < 200; ++i) {
      tokens.push_back(static_cast<int32_t>(random() % 6));
      if (random() % 3 == 0) continue;  // some updates add several tokens
      index.Update(tokens);
      index.Find(tokens, 2, 1000, matches);
      size_t found = 0;
      const auto size = static_cast<int32_t>(tokens.size());
      for (int32_t next = size - 1; next >= 2 && found < matches.size(); --next) {
        int32_t length = 0;
        while (length < TokenMatches::kMaxLength && length < next &&
               tokens[next - 1 - length] == tokens[size - 1 - length]) {
          ++length;
        }
        if (length < 2) continue;
        EXPECT_EQ(matches[found].next, next);
        EXPECT_EQ(matches[found].length, length);
        ++found;
      }
      EXPECT_EQ(found, matches.size());
    }
  }
}

TEST(TokenMatchesTest, LooksOnlyAtTheNewestTokensOfALongSequence) {
  TokenMatches index;
  TokenIds tokens = {-7, -8, -9};  // no other token is negative
  for (int32_t i = 0; i < 2 * TokenMatches::kMaxTokens; ++i) tokens.push_back(i);
  tokens.insert(tokens.end(), {500000, 500001, 500002});
  std::vector<TokenMatch> matches;
  const auto update_all = [&] {
    for (int i = 0; i < 40; ++i) index.Update(tokens);
  };
  update_all();
  tokens.insert(tokens.end(), {-7, -8});
  update_all();
  index.Find(tokens, 2, 10, matches);
  EXPECT_TRUE(matches.empty());
  tokens.insert(tokens.end(), {500000, 500001});
  update_all();
  index.Find(tokens, 2, 10, matches);
  ASSERT_EQ(matches.size(), 1u);
  EXPECT_EQ(tokens[matches[0].next], 500002);
}

TEST(StepCostsTest, AreRelativeToTheStepWithoutDrafts) {
  StepCosts costs;
  EXPECT_LT(costs.Of(1, 4).relative, 1.2) << "a guess, so that drafts are tried";
  EXPECT_FALSE(costs.Of(1, 4).is_measured);
  for (int i = 0; i < 50; ++i) {
    costs.Record(1, 0, 0.010);
    costs.Record(1, 4, 0.013);
    costs.Record(16, 0, 0.010);
    costs.Record(16, 64, 0.050);
  }
  EXPECT_NEAR(costs.Of(1, 4).relative, 1.3, 0.01);
  EXPECT_TRUE(costs.Of(1, 4).is_measured);
  EXPECT_NEAR(costs.Of(16, 64).relative, 5.0, 0.01);
  EXPECT_NEAR(costs.Of(1, 8).relative, 1.55, 0.01) << "a guess that continues what was measured";
  EXPECT_FALSE(costs.Of(1, 8).is_measured);
  for (int i = 0; i < 600; ++i) costs.Record(1, 0, 0.010);
  EXPECT_LT(costs.Of(1, 4).relative, 1.2) << "tried again after many steps";
}

TEST(StepCostsTest, TrialsGrowByAFactorOfTwo) {
  StepCosts costs;
  EXPECT_EQ(costs.MostDrafts(1), 1);
  EXPECT_EQ(costs.MostDrafts(64), 8);
  costs.Record(64, 8, 1.0);
  EXPECT_EQ(costs.MostDrafts(64), 16);
  costs.Record(64, 200, 1.0);
  EXPECT_EQ(costs.MostDrafts(64), 400);
  EXPECT_EQ(costs.MostDrafts(1), 1) << "of another size";
}

TEST(GainAccountTest, BoundsWhatTrialsCost) {
  GainAccount account;
  EXPECT_FALSE(account.CanRisk(0.1));
  account.RecordPlain(1.0);
  EXPECT_TRUE(account.CanRisk(2.0));
  account.RecordDrafted(3.0, 1.0, 4, 4);  // nothing was accepted: 2 seconds lost
  EXPECT_FALSE(account.CanRisk(0.1));
  for (int i = 0; i < 30; ++i) account.RecordPlain(1.0);
  EXPECT_TRUE(account.CanRisk(0.1));
  for (int i = 0; i < 100; ++i) account.RecordDrafted(1.0, 1.0, 4, 16);
  EXPECT_TRUE(account.CanRisk(3.9));
  EXPECT_FALSE(account.CanRisk(4.1)) << "only a part of what was gained";
  EXPECT_TRUE(account.MayInvest(4.9, 1.0)) << "a debt of one step";
  EXPECT_FALSE(account.MayInvest(5.1, 1.0));
  for (int i = 0; i < 9; ++i) account.RecordDrafted(2.0, 1.0, 4, 4);
  EXPECT_FALSE(account.MayGoOn(1.0));
}

TEST(GainAccountTest, SavesForWhatWasPutOff) {
  GainAccount account;
  account.RecordPlain(1.0);
  for (const auto& [wanted, saved] : {std::pair(9.0, 9.0), {3.0, 4.0}, {1000.0, 32.0}}) {
    account.SaveFor(wanted);
    for (int i = 0; i < 20000; ++i) account.RecordPlain(1.0);
    EXPECT_TRUE(account.CanRisk(0.99 * saved)) << wanted;
    EXPECT_FALSE(account.CanRisk(1.01 * saved)) << wanted;
  }
}

TEST(AcceptanceRatesTest, FollowRecentOutcomesOfEachClass) {
  AcceptanceRates rates;
  EXPECT_FLOAT_EQ(rates.Estimate(0, 0.6f), 0.6f);
  for (int i = 0; i < 100; ++i) rates.Record(0, 4, 0);
  EXPECT_LT(rates.Estimate(0, 0.6f), 0.15f);
  EXPECT_FLOAT_EQ(rates.Estimate(1, 0.6f), 0.6f);
  for (int i = 0; i < 20; ++i) rates.Record(0, 4, 4);
  EXPECT_GT(rates.Estimate(0, 0.6f), 0.9f);
}

class RepeatingDrafter : public Drafter {
 public:
  std::string_view name() const override { return "repeating"; }
  void Propose(std::span<DraftQuery> queries) override {
    for (DraftQuery& query : queries) query.drafts->assign(query.max_drafts, query.tokens.back());
  }
};

class DraftPlannerTest : public ::testing::Test {
 protected:
  DraftPlannerTest() {
    Start({.drafter = std::make_shared<RepeatingDrafter>()});
    running_.push_back(MakeSequence(100));
  }
  void Start(const SpeculationOptions& options) {
    planner_ = std::make_unique<DraftPlanner>(options, true);
  }
  // A sequence of three prompt tokens that decodes.
  std::unique_ptr<Sequence> MakeSequence(int32_t num_max_tokens, bool speculates = true) {
    auto request = std::make_unique<GenerationRequest>();
    request->prompt = {1, 2, 3};
    request->speculates = speculates;
    std::unique_ptr<Sequence> sequence = MakeSequences(std::move(request));
    planner_->Add(*sequence);
    sequence->num_max_tokens = num_max_tokens;
    sequence->num_cached = 2;
    return sequence;
  }
  int32_t Planned() {
    planner_->Plan(running_);
    return running_[0]->num_drafts;
  }
  // Measures steps that take `seconds` for 1 + `cost` * number of drafts.
  void Measure(double cost) {
    for (int i = 0; i < 2; ++i) {
      for (int32_t drafts = 0; drafts <= 8; ++drafts)
        planner_->RecordStep({1, drafts, drafts, 1 + cost * drafts});
    }
  }

  std::unique_ptr<DraftPlanner> planner_;
  std::vector<std::unique_ptr<Sequence>> running_;
};

TEST_F(DraftPlannerTest, DraftsLongerTheMoreAreAccepted) {
  Measure(0.1);
  EXPECT_GT(Planned(), 0);
  for (int i = 0; i < 30; ++i) planner_->RecordAccepted(*running_[0], 8, 8);
  EXPECT_EQ(Planned(), 8);
}

TEST_F(DraftPlannerTest, StopsWhenNothingIsAcceptedAndStartsAgainWhenItWouldBe) {
  Measure(0.1);
  for (int i = 0; i < 30; ++i) planner_->RecordAccepted(*running_[0], 4, 0);
  EXPECT_EQ(Planned(), 0);
  for (int i = 0; i < 30; ++i) {
    planner_->Plan(running_);
    planner_->RecordUnverified(*running_[0], 3);  // the draft would have been accepted
  }
  EXPECT_GT(Planned(), 0);
}

TEST_F(DraftPlannerTest, DoesNotDraftWhereATokenCostsAWholeStep) {
  Measure(1.0);
  for (int i = 0; i < 30; ++i) planner_->RecordAccepted(*running_[0], 8, 7);
  EXPECT_EQ(Planned(), 0);
}

TEST_F(DraftPlannerTest, TakesTheClientsDraftsWhileTheOutputBeginsLikeThem) {
  running_[0]->request->draft_ids = {7, 8, 9};
  EXPECT_EQ(Planned(), 3);
  EXPECT_EQ(running_[0]->drafts->ids, (TokenIds{7, 8, 9}));
  running_[0]->token_ids.push_back(7);
  ++running_[0]->num_cached;
  EXPECT_EQ(Planned(), 2);
  running_[0]->token_ids.push_back(5);
  ++running_[0]->num_cached;
  planner_->Plan(running_);
  EXPECT_EQ(running_[0]->drafts->ids.front(), 5) << "of the drafter";
}

// So that its steps may overlap. Proposals behind a pending token are only measured.
TEST_F(DraftPlannerTest, ASequenceIsIdleWhileDraftsDoNotPay) {
  Measure(1.0);
  Sequence& sequence = *running_[0];
  for (int i = 0; i < SequenceDrafts::kStepsUntilIdle; ++i) {
    EXPECT_FALSE(sequence.drafts->is_idle());
    EXPECT_EQ(Planned(), 0);
  }
  EXPECT_TRUE(sequence.drafts->is_idle());
  sequence.token_ids.push_back(PendingTokenId(0));
  sequence.num_pending = 1;
  ++sequence.num_cached;
  EXPECT_EQ(Planned(), 0);
  EXPECT_TRUE(sequence.drafts->is_idle());
  EXPECT_EQ(sequence.drafts->ids.front(), 3) << "behind the known tokens";
  for (int i = 0; i < 60; ++i) Measure(0.01);
  EXPECT_EQ(Planned(), 0) << "the newest token is pending";
  EXPECT_FALSE(sequence.drafts->is_idle());
}

// Of two tokens that are sampled after one proposal, the second is compared with its second token.
TEST_F(DraftPlannerTest, ProposalsAreComparedWithTheTokensInOrder) {
  Measure(1.0);
  planner_->Plan(running_);
  SequenceDrafts& drafts = *running_[0]->drafts;
  drafts.ids = {4, 5, 6};
  planner_->RecordUnverified(*running_[0], 4);
  EXPECT_EQ(drafts.ids, (TokenIds{5, 6}));
  planner_->RecordUnverified(*running_[0], 9);
  EXPECT_TRUE(drafts.ids.empty());
}

// What few drafts add is less than steps differ: it says little about many drafts.
TEST(StepCostsTest, NoiseOfFewDraftsDoesNotMakeManyCheap) {
  static constexpr StepCostPoint kTypical[] = {{1, 1.0f}, {101, 2.0f}, {1001, 11.0f}};
  StepCosts costs({kTypical});
  for (int i = 0; i < 2; ++i) {
    costs.Record(100, 0, 1.0);
    costs.Record(100, 2, 0.99);
  }
  EXPECT_GT(costs.Of(100, 400).relative, 2.0);
}

TEST(StepCostsTest, TypicalCostsThatWereMeasuredAreNoGuess) {
  static constexpr StepCostPoint kTypical[] = {{1, 2.0f}, {9, 4.0f}};
  StepCosts costs({kTypical, true});
  EXPECT_FALSE(costs.Of(1, 8).is_measured) << "nothing to compare with";
  costs.Record(1, 0, 1.0);
  EXPECT_TRUE(costs.Of(1, 8).is_measured);
  EXPECT_DOUBLE_EQ(costs.Of(1, 8).relative, 2.0);
  costs.Record(1, 8, 3.0);
  EXPECT_TRUE(costs.Of(1, 8).is_measured);
  EXPECT_DOUBLE_EQ(costs.Of(1, 8).relative, 2.5) << "a single step may have been delayed";
  costs.Record(1, 8, 3.0);
  EXPECT_DOUBLE_EQ(costs.Of(1, 8).relative, 3.0);
}

TEST(StepCostsTest, GuessesByTheTypicalCosts) {
  static constexpr StepCostPoint kTypical[] = {{1, 2.0f}, {9, 4.0f}, {17, 8.0f}};
  StepCosts costs({kTypical});
  EXPECT_DOUBLE_EQ(costs.Of(1, 4).relative, 1.5);
  EXPECT_DOUBLE_EQ(costs.Of(1, 8).relative, 2.0);
  EXPECT_DOUBLE_EQ(costs.Of(9, 8).relative, 2.0);
  EXPECT_DOUBLE_EQ(costs.Of(9, 16).relative, 3.0) << "the last line goes on";
  for (int i = 0; i < 2; ++i) {
    costs.Record(1, 0, 1.0);
    costs.Record(1, 4, 1.25);
  }
  EXPECT_DOUBLE_EQ(costs.Of(1, 4).relative, 1.25) << "measured";
}

// A plain step that was slow at first does not always make drafts look cheap.
// Contexts take their time with and without drafts.
TEST(StepCostsTest, AreThoseOfTheContextsOfTheNextStep) {
  static constexpr StepCostPoint kTypical[] = {{1, 1.0f}, {257, 9.0f}};
  StepCosts costs({kTypical, true, 0.001});
  for (int i = 0; i < 2; ++i) {
    costs.SetContext(1000);
    costs.Record(8, 0, 3.0);  // 2.0 without the contexts
    costs.Record(8, 16, 4.0);
  }
  EXPECT_DOUBLE_EQ(costs.PlainSeconds(8), 3.0);
  EXPECT_DOUBLE_EQ(costs.Of(8, 16).relative, 4.0 / 3.0);
  costs.SetContext(6000);
  EXPECT_DOUBLE_EQ(costs.PlainSeconds(8), 8.0);
  EXPECT_DOUBLE_EQ(costs.Of(8, 16).relative, 9.0 / 8.0);
  StepCosts others({kTypical, true, 0.001});
  others.SetContext(6000);
  for (int i = 0; i < 2; ++i) others.Record(8, 0, 8.0);
  EXPECT_GT(others.Of(8, 248).relative, 2.0);
  others.SetContext(60000);
  EXPECT_LT(others.Of(8, 248).relative, 1.3) << "most of the step is the time of the contexts";
}

// Numbers of drafts that differ by up to a half share their measurements.
TEST(StepCostsTest, MeasurementsAreThoseOfTheirNumberOfDrafts) {
  static constexpr StepCostPoint kTypical[] = {{1, 1.0f}, {257, 9.0f}};
  StepCosts costs({kTypical, true});
  for (int i = 0; i < 8; ++i) {
    costs.Record(64, 0, 1.0);
    costs.Record(64, i % 2 == 0 ? 64 : 95, i % 2 == 0 ? 1.64 : 1.95);
  }
  EXPECT_NEAR(costs.Of(64, 64).relative, 1.64, 0.04);
  EXPECT_NEAR(costs.Of(64, 95).relative, 1.95, 0.04);
}

// A step without drafts would have overlapped with the one before, but for the drafter.
TEST(StepCostsTest, DraftsCostTheTimeForWhichTheExecutorIsIdle) {
  static constexpr StepCostPoint kTypical[] = {{1, 1.0f}, {257, 9.0f}};
  StepCosts costs({kTypical, true});
  costs.Record(64, 0, 1.0);
  const double before = costs.Of(64, 64).relative;
  costs.RecordIdle(64, 0.25);
  EXPECT_DOUBLE_EQ(costs.Of(64, 64).relative, before + 0.25);
}

TEST(StepCostsTest, PlainStepsAreMeasuredAgain) {
  StepCosts costs;
  EXPECT_TRUE(costs.NeedsPlainStep(64));
  costs.Record(64, 0, 3.0);
  EXPECT_FALSE(costs.NeedsPlainStep(64));
  EXPECT_TRUE(costs.NeedsPlainStep(1));
  int num_plain = 0;
  for (int step = 0; step < 1000; ++step) {
    const bool is_plain = costs.NeedsPlainStep(64);
    num_plain += is_plain ? 1 : 0;
    costs.Record(64, is_plain ? 0 : 64, is_plain ? 1.0 : 1.1);
  }
  EXPECT_NEAR(costs.Of(64, 64).relative, 1.1, 0.02);
  EXPECT_LT(num_plain, 20);
}

TEST_F(DraftPlannerTest, LeavesOutWhatARequestTurnsOff) {
  running_.push_back(MakeSequence(100, /*speculates=*/false));
  planner_->Plan(running_);
  EXPECT_EQ(running_[1]->num_drafts, 0);
}

// Would propose trees if the executor verified them.
class ThwartedDrafter : public RepeatingDrafter {
 public:
  bool proposes_trees() const override { return true; }
  void Propose(std::span<DraftQuery> queries) override {
    for (const DraftQuery& query : queries) {
      EXPECT_FALSE(query.takes_trees);
      EXPECT_EQ(query.max_drafts, kMaxDraftTokens);
    }
    RepeatingDrafter::Propose(queries);
  }
};

TEST_F(DraftPlannerTest, AnExecutorWithoutTreesGetsNoLongerChainsFromADrafterOfTrees) {
  Start({.drafter = std::make_shared<ThwartedDrafter>(),
         .max_draft_tokens = kMaxTreeDrafts,
         .adapts_length = false});
  running_[0] = MakeSequence(1000);
  EXPECT_EQ(Planned(), kMaxDraftTokens);
}

class CostlyDrafter : public RepeatingDrafter {
 public:
  bool is_costly() const override { return true; }
};

// Tokens that a grammar forces are accepted whatever the drafter is worth.
TEST_F(DraftPlannerTest, ATrialHasTheOutcomesOfTheDrafterAlone) {
  for (const bool has_forced_tokens : {false, true}) {
    Start({.drafter = std::make_shared<CostlyDrafter>()});
    running_[0] = MakeSequence(1000);
    const std::unique_ptr<Sequence> forced = MakeSequence(1000);
    forced->drafts->match_class = AcceptanceRates::kNumClasses - 1;
    for (int i = 0; i < 30; ++i) planner_->RecordAccepted(*running_[0], 4, 0);
    int num_plain = 0;
    for (; Planned() == 0; ++num_plain) {
      ASSERT_LT(num_plain, 200);
      planner_->RecordStep({1, 0, 0, 1.0});
    }
    int num_trials = 0;
    for (int32_t drafts = 2; drafts > 0; drafts = Planned()) {
      ASSERT_LT(++num_trials, 20);
      planner_->RecordStep({1, drafts, 0, 1.02});
      planner_->RecordAccepted(*running_[0], drafts, 0);
      if (has_forced_tokens) planner_->RecordAccepted(*forced, 8, 8);
    }
    EXPECT_EQ(num_trials, 6) << has_forced_tokens;
  }
}

}  // namespace
}  // namespace nereid::llm
