// Draft tokens never make a batch slower: simulated steps, with any number of sequences and any
// acceptance.
#include "backends/llm_core/engine/draft_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/sampling/sampling_params.h"
#include "tests/support/sanitizer.h"

namespace nereid::llm {
namespace {

enum class Shape {
  kChains,
  kTrees,          // a costly drafter takes the same time for any of them
  kTreesWithRows,  // of a drafter that reads row tokens
};

// The children of the newest token and of each draft.
constexpr int32_t kChildren = 3;

// Proposes any tokens. A costly one takes the same time for each token, whatever the number of
// sequences, and some time for each token that it has not seen yet.
class SimulatedDrafter : public Drafter {
 public:
  SimulatedDrafter(double seconds, double seconds_of_unseen, Shape shape, double* now)
      : seconds_(seconds), seconds_of_unseen_(seconds_of_unseen), shape_(shape), now_(now) {}
  std::string_view name() const override { return "simulated"; }
  bool is_costly() const override { return seconds_ > 0.0; }
  bool proposes_trees() const override { return shape_ != Shape::kChains; }
  bool reads_row_tokens() const override { return shape_ == Shape::kTreesWithRows; }
  int32_t DraftingSteps(int32_t num_drafts) const override {
    return proposes_trees() ? 1 : num_drafts;
  }
  bool reads_hidden_states() const override { return reads_hidden_states_; }
  void ReadHiddenStates() { reads_hidden_states_ = true; }
  void Observe(std::unique_ptr<DrafterState>& state, int32_t /*first_position*/,
               const HiddenRows& rows) override {
    if (state == nullptr) state = std::make_unique<State>();
    static_cast<State&>(*state).num_observed += static_cast<size_t>(rows.num_rows);
  }
  void Propose(std::span<DraftQuery> queries) override {
    int32_t longest = 0;
    for (DraftQuery& query : queries) {
      if (*query.state == nullptr) *query.state = std::make_unique<State>();
      State& state = static_cast<State&>(**query.state);
      const size_t num_before = std::exchange(state.num_seen, query.tokens.size());
      size_t num_unseen = std::exchange(state.num_observed, 0);
      if (!reads_hidden_states_) num_unseen = query.tokens.size() - num_before;
      if (num_unseen > kMostUnseenOfStep) query.num_caught_up = static_cast<int32_t>(num_unseen);
      if (is_costly()) *now_ += seconds_of_unseen_ * static_cast<double>(num_unseen);
      query.drafts->assign(query.max_drafts, query.tokens.back());
      if (proposes_trees()) {
        EXPECT_TRUE(query.takes_trees);
        std::iota(query.drafts->begin(), query.drafts->end(), 0);
        for (int32_t i = 0; i < query.max_drafts; ++i) {
          query.parents->push_back(i / kChildren - 1);
        }
      }
      longest = std::max(longest, query.max_drafts);
    }
    *now_ += seconds_ * DraftingSteps(longest);
  }

 private:
  struct State : DrafterState {
    size_t num_seen = 0, num_observed = 0;
  };
  const double seconds_, seconds_of_unseen_;
  const Shape shape_;
  double* const now_;
  bool reads_hidden_states_ = false;
};

// The seconds of a step of so many tokens.
using CostFunction = double (*)(int32_t num_tokens);

double OfOneProcessor(int32_t num_tokens) {
  return 0.001 + 0.0009 * num_tokens;
}
double OfOneGpu(int32_t num_tokens) {
  return 0.005 + 0.00005 * num_tokens + (num_tokens > 64 ? 0.000012 * (num_tokens - 64) : 0.0);
}
// Steps of more tokens than 24 need another kernel.
double WithACliff(int32_t num_tokens) {
  return 0.004 + 0.00002 * num_tokens + (num_tokens > 24 ? 0.003 : 0.0);
}

// An 8B model in bf16 on an H100 (bench/results/speculation_gpu.csv): kernels of up to 8 rows, of
// up to 64, and products of more.
constexpr StepCostPoint kH100[] = {
    {1, 5.07f},   {4, 5.33f},   {5, 5.53f},   {8, 5.57f},   {9, 6.05f},   {32, 6.37f},
    {48, 6.63f},  {72, 7.23f},  {128, 7.64f}, {192, 8.79f}, {256, 9.51f}, {320, 11.3f},
    {384, 12.5f}, {448, 14.8f}, {512, 15.5f}, {576, 18.0f}, {2304, 72.0f}};
double OfAnH100(int32_t num_tokens) {
  const auto* next =
      std::find_if(std::begin(kH100) + 1, std::end(kH100) - 1,
                   [&](const auto& point) { return point.num_tokens >= num_tokens; });
  const StepCostPoint &low = next[-1], &high = *next;
  const double part = static_cast<double>(num_tokens - low.num_tokens) /
                      static_cast<double>(high.num_tokens - low.num_tokens);
  return 0.001 * (low.cost + part * (high.cost - low.cost));
}

constexpr double kSecondsOfUnseen = 0.000005;

struct Simulation {
  const char* name;
  CostFunction cost;
  double draft_seconds;
  std::span<const StepCostPoint> typical = {};
  double seconds_of_unseen = kSecondsOfUnseen;
  Shape shape = Shape::kChains;
  bool are_measured = false;  // TypicalCosts
};
void PrintTo(const Simulation& simulation, std::ostream* out) {
  *out << simulation.name;
}

constexpr Simulation kSimulations[] = {
    {"one processor", OfOneProcessor, 0.0},
    {"one GPU", OfOneGpu, 0.0},
    {"a cliff", WithACliff, 0.0},
    {"one processor, draft model", OfOneProcessor, 0.0002},
    {"one GPU, draft model", OfOneGpu, 0.0006},
    {"a cliff, draft model", WithACliff, 0.003},
    {"an H100", OfAnH100, 0.0, kH100},
    {"an H100, draft model", OfAnH100, 0.0006, kH100},
    {"not an H100", OfOneProcessor, 0.0, kH100},
    {"one processor, trees", OfOneProcessor, 0.0004, {}, kSecondsOfUnseen, Shape::kTrees},
    {"one GPU, trees", OfOneGpu, 0.0006, {}, kSecondsOfUnseen, Shape::kTrees},
    {"an H100, trees", OfAnH100, 0.0006, kH100, kSecondsOfUnseen, Shape::kTrees},
    {"one processor, rows", OfOneProcessor, 0.0, {}, kSecondsOfUnseen, Shape::kTreesWithRows},
    {"one GPU, rows", OfOneGpu, 0.0, {}, kSecondsOfUnseen, Shape::kTreesWithRows},
    {"an H100, rows", OfAnH100, 0.0, kH100, kSecondsOfUnseen, Shape::kTreesWithRows},
    {"a measured H100", OfAnH100, 0.0, kH100, kSecondsOfUnseen, Shape::kChains, true},
    {"a measured H100, head", OfAnH100, 0.0005, kH100, kSecondsOfUnseen, Shape::kChains, true},
    {"a measured H100, trees", OfAnH100, 0.0006, kH100, kSecondsOfUnseen, Shape::kTrees, true}};

class DraftSimulation {
 public:
  DraftSimulation(const Simulation& simulation, int32_t num_sequences,
                  bool reads_hidden_states = false, int32_t max_hidden_state_sequences = 0,
                  uint32_t seed = 0)
      : simulation_(simulation), random_(static_cast<uint32_t>(num_sequences) + 1000 * seed) {
    SpeculationOptions options;
    auto drafter = std::make_shared<SimulatedDrafter>(
        simulation.draft_seconds, simulation.seconds_of_unseen, simulation.shape, &now_);
    options.verifies_trees = true;
    if (simulation.shape != Shape::kChains) options.max_draft_tokens = 63;
    if (reads_hidden_states) drafter->ReadHiddenStates();
    options.drafter = std::move(drafter);
    options.max_hidden_state_sequences = max_hidden_state_sequences;
    planner_ = std::make_unique<DraftPlanner>(
        options, true, TypicalCosts{simulation.typical, simulation.are_measured},
        [this] { return now_; });
    Begin(num_sequences);
  }

  // Other sequences, of which no token was generated yet, take the place of those that run.
  void Begin(int32_t num_sequences) {
    running_.clear();
    for (int32_t i = 0; i < num_sequences; ++i) {
      auto request = std::make_unique<GenerationRequest>();
      request->prompt = TokenIds(200, 1);
      running_.push_back(MakeSequences(std::move(request)));
      planner_->Add(*running_[i]);
      running_[i]->num_max_tokens = 1 << 30;
      running_[i]->num_cached = 199;
      Observe(*running_[i], 199, 0, 0);  // the prompt
    }
  }

  // Returns the tokens a second, in units of those without drafts.
  double Run(double acceptance, int num_steps) {
    const auto num_sequences = static_cast<int32_t>(running_.size());
    const double first = now_;
    int64_t num_tokens = 0;
    for (int step = 0; step < num_steps; ++step) {
      const double began = now_;
      const int32_t budget = max_num_rows_ - num_sequences;
      planner_->Plan(running_, budget);
      int32_t num_drafts = 0, num_accepted = 0;
      StepResult result;
      for (const auto& sequence : running_) {
        num_drafts += sequence->num_drafts;
        num_accepted += Accept(*sequence, acceptance, result);
      }
      EXPECT_LE(num_drafts, budget);
      const double noise = 1.0 + 0.03 * (static_cast<double>(random_() % 2001) / 1000.0 - 1.0);
      const double slowness = num_drafts > 0 ? slowness_of_drafts_ : 1.0;
      now_ += slowness * noise * simulation_.cost(num_sequences + num_drafts);
      num_tokens += num_sequences + num_accepted;
      planner_->RecordStep({.num_sequences = num_sequences,
                            .num_drafts = num_drafts,
                            .num_accepted = num_accepted,
                            .seconds = now_ - began,
                            .is_typical = slowness == 1.0});
      for (size_t i = 0; i < running_.size(); ++i) {
        Sequence& sequence = *running_[i];
        const auto accepted = static_cast<int32_t>(result.accepted[i].size());
        Observe(sequence, 1 + sequence.num_drafts, sequence.num_drafts, accepted);
        sequence.token_ids.resize(sequence.token_ids.size() + 1 + accepted, 1);
        sequence.num_cached += 1 + accepted;
        if (sequence.num_drafts > 0) {
          planner_->RecordVerified(sequence, std::exchange(sequence.num_drafts, 0), i, result);
        } else if (!sequence.drafts->ids.empty()) {
          const int32_t proposed = sequence.drafts->ids.front();
          planner_->RecordUnverified(sequence, Happens(acceptance) ? proposed : -1);
        }
      }
    }
    const double plain = num_sequences / simulation_.cost(num_sequences);
    return static_cast<double>(num_tokens) / (now_ - first) / plain;
  }

  void LimitRows(int32_t max_num_rows) { max_num_rows_ = max_num_rows; }
  // Makes steps with drafts longer, none of which is typical.
  void SlowDrafts(double slowness) { slowness_of_drafts_ = slowness; }
  // Sequences whose hidden states the newest step returned.
  int64_t num_read() const {
    return std::count_if(running_.begin(), running_.end(), [](const auto& sequence) {
      return sequence->drafts->reads_hidden_states;
    });
  }

 private:
  // The hidden states of a step with so many tokens of the sequence.
  void Observe(Sequence& sequence, int32_t num_tokens, int32_t num_drafts, int32_t num_accepted) {
    if (!sequence.drafts->reads_hidden_states) return;
    BatchEntry entry;
    entry.num_tokens = num_tokens;
    entry.num_draft_tokens = num_drafts;
    StepResult result;
    result.accepted.emplace_back(num_accepted);
    planner_->RecordHiddenStates(sequence, entry, 0, result);
  }
  bool Happens(double probability) {
    return static_cast<double>(random_() % 100000) < probability * 100000.0;
  }
  // Accepts drafts at random. Of a tree, it takes the first child, the second and the third with
  // falling probabilities, one of them with `acceptance`.
  int32_t Accept(const Sequence& sequence, double acceptance, StepResult& result) {
    std::vector<SampledToken>& tokens = result.accepted.emplace_back();
    std::vector<int32_t>& drafts = result.accepted_drafts.emplace_back();
    for (int32_t draft = 0; draft < sequence.num_drafts && Happens(acceptance);) {
      if (simulation_.shape != Shape::kChains) {
        while (draft % kChildren < kChildren - 1 && Happens(0.35)) ++draft;
        if (draft >= sequence.num_drafts) break;
        drafts.push_back(draft);
      }
      tokens.emplace_back();
      draft = simulation_.shape == Shape::kChains ? draft + 1 : kChildren * (draft + 1);
    }
    return static_cast<int32_t>(tokens.size());
  }

  const Simulation simulation_;
  double now_ = 1.0;
  int32_t max_num_rows_ = INT32_MAX;  // of a step
  double slowness_of_drafts_ = 1.0;
  std::mt19937 random_;
  std::unique_ptr<DraftPlanner> planner_;
  std::vector<std::unique_ptr<Sequence>> running_;
};

// Returns these sizes of a batch. Builds with sanitizers, which take twenty times as long and look
// for faults of memory and threads alone, simulate only the small ones.
std::vector<int32_t> Batches(std::vector<int32_t> sizes) {
  if (kHasSanitizer) std::erase_if(sizes, [](int32_t size) { return size > 4; });
  return sizes;
}

class DraftPlannerSimulationTest : public ::testing::TestWithParam<Simulation> {
 protected:
  // What trials may cost in some thousand steps. A costly drafter also reads the prompts first.
  static double LeastRate() { return GetParam().draft_seconds > 0.0 ? 0.985 : 0.99; }
};

TEST_P(DraftPlannerSimulationTest, NoBatchIsSlowerThanWithoutDrafts) {
  for (const int32_t num_sequences : Batches({1, 2, 8, 20, 64, 256})) {
    for (const double acceptance : {0.0, 0.1, 0.25, 0.4, 0.6, 0.8, 1.0}) {
      // Builds with sanitizers simulate only two acceptances, for the reason given at Batches().
      if (kHasSanitizer && acceptance != 0.25 && acceptance != 0.8) continue;
      DraftSimulation simulation(GetParam(), num_sequences);
      const int num_steps = num_sequences < 64 ? 2000 : 1000;
      EXPECT_GE(simulation.Run(acceptance, num_steps), LeastRate())
          << num_sequences << " " << acceptance;
    }
  }
}

// The acceptance of a batch changes: what is lost until that is noticed is bounded, and drafting
// begins again when it pays, at once for a drafter whose proposals cost nothing.
TEST_P(DraftPlannerSimulationTest, FollowsTheAcceptance) {
  for (const int32_t num_sequences : Batches({1, 8, 64})) {
    DraftSimulation simulation(GetParam(), num_sequences);
    const double at_first = simulation.Run(0.95, 1000);
    EXPECT_GE(simulation.Run(0.0, 2000), LeastRate()) << num_sequences;
    EXPECT_GE(simulation.Run(0.95, 1000), LeastRate()) << num_sequences;
    if (GetParam().draft_seconds > 0.0) continue;
    EXPECT_GE(simulation.Run(0.95, 1000), 0.93 * at_first) << num_sequences;
  }
}

INSTANTIATE_TEST_SUITE_P(Costs, DraftPlannerSimulationTest, ::testing::ValuesIn(kSimulations),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::erase_if(name, [](char c) { return !std::isalnum(c); });
                           return name;
                         });

// So that the test above is not met by a planner that never drafts.
TEST(DraftPlannerGainTest, DraftsWhereItPays) {
  EXPECT_GT(DraftSimulation(kSimulations[1], 1).Run(0.8, 1000), 2.5);
  EXPECT_GT(DraftSimulation(kSimulations[1], 64).Run(0.8, 1000), 1.15);
  EXPECT_GT(DraftSimulation(kSimulations[0], 1).Run(0.95, 1000), 1.3);
  EXPECT_GT(DraftSimulation(kSimulations[4], 1).Run(0.8, 1000), 1.5);
  // Few drafts do not pay, since a step of 9 tokens takes other kernels than one of 8.
  EXPECT_GT(DraftSimulation(kSimulations[6], 8).Run(0.5, 1000), 1.5);
  EXPECT_GT(DraftSimulation(kSimulations[6], 64).Run(0.8, 1000), 1.9);
  // Trees: 12 drafts have the paths of two tokens, 39 those of three.
  EXPECT_GT(DraftSimulation(kSimulations[10], 1).Run(0.8, 1000), 1.8);
  EXPECT_GT(DraftSimulation(kSimulations[11], 8).Run(0.8, 1000), 1.3);
  EXPECT_GT(DraftSimulation(kSimulations[13], 1).Run(0.8, 1000), 1.5);
  EXPECT_GT(DraftSimulation(kSimulations[14], 8).Run(0.8, 1000), 1.05);
}

// A draft model reads each prompt in the time of several steps. It still drafts for new sequences
// while its drafts are accepted, and once they are again.
TEST(DraftPlannerGainTest, ReadsLongPromptsWhereItPays) {
  for (const double steps_of_prompt : {2.0, 4.0, 8.0}) {
    Simulation slow = kSimulations[4];
    slow.seconds_of_unseen = steps_of_prompt * slow.cost(1) / 200;
    DraftSimulation simulation(slow, 1);
    const auto run = [&](double acceptance, int num_sequences) {
      double sum = 0.0;
      for (int i = 0; i < num_sequences; ++i) {
        simulation.Begin(1);
        sum += simulation.Run(acceptance, 200);
      }
      return sum / num_sequences;
    };
    run(0.85, 10);
    EXPECT_GT(run(0.85, 10), 1.3) << steps_of_prompt;
    EXPECT_GE(run(0.0, 20), 0.985) << steps_of_prompt;
    run(0.85, 40);
    EXPECT_GT(run(0.85, 10), 1.3) << steps_of_prompt;
  }
}

// The first steps of a size take longer and measure nothing. Where the sizes keep changing, drafts
// still lose no more than trials may cost.
TEST(DraftPlannerGainTest, StepsThatAreNeverTypicalLoseLittle) {
  for (const size_t i : {1, 6, 10, 11, 15, 17}) {
    for (const int32_t num_sequences : Batches({1, 8, 64})) {
      for (const double acceptance : {0.0, 0.4, 0.7}) {
        DraftSimulation simulation(kSimulations[i], num_sequences);
        simulation.SlowDrafts(4.0);
        EXPECT_GE(simulation.Run(acceptance, 2000), 0.985)
            << kSimulations[i].name << " " << num_sequences << " " << acceptance;
      }
    }
  }
}

// Hidden states take time, too: while drafts do not pay, they are read now and then, of a few
// sequences, one of which is tried.
TEST(DraftPlannerHiddenStatesTest, FewAreReadWhileDraftsDoNotPay) {
  for (const int32_t num_sequences : Batches({1, 64, 256})) {
    DraftSimulation simulation(kSimulations[4], num_sequences, true);
    simulation.Run(0.9, 1);
    EXPECT_EQ(simulation.num_read(), num_sequences);
    simulation.Run(0.0, 2000);
    int64_t num_read = 0;
    constexpr int kSteps = 2000;
    for (int step = 0; step < kSteps; ++step) {
      simulation.Run(0.0, 1);
      EXPECT_LE(simulation.num_read(), 4);
      num_read += simulation.num_read();
    }
    EXPECT_LT(num_read, kSteps / 4) << num_sequences;
    EXPECT_GE(simulation.Run(0.0, 1000), 0.985) << num_sequences;
    if (num_sequences > 1) continue;
    simulation.Run(0.95, 4000);
    EXPECT_EQ(simulation.num_read(), num_sequences);
    EXPECT_GT(simulation.Run(0.95, 1000), 1.1) << num_sequences;
  }
}

// A head whose drafts pay is found out within some hundred steps, whatever the first outcomes were.
TEST(DraftPlannerHiddenStatesTest, ATrialDoesNotFailByChance) {
  const Simulation head = {"a head on an H100", OfAnH100, 0.00033, kH100, 0.0000006};
  for (const int32_t num_sequences : Batches({4, 8, 12, 16, 32, 64})) {
    for (uint32_t seed = 0; seed < 30; ++seed) {
      DraftSimulation simulation(head, num_sequences, true, 0, seed);
      EXPECT_GE(simulation.Run(0.78, 400), 0.99) << num_sequences << " " << seed;
      EXPECT_GT(simulation.Run(0.78, 200), 1.3) << num_sequences << " " << seed;
    }
  }
}

// Where a step has too few rows for the drafts of all sequences that would pay, some get fewer, and
// nothing else is expected of them.
TEST(DraftPlannerHiddenStatesTest, AStepHasNoMoreRowsThanItMay) {
  const Simulation head = {"a head on an H100", OfAnH100, 0.0005, kH100, 0.0000006};
  for (const int32_t num_sequences : {128, 192, 256}) {
    if (kHasSanitizer && num_sequences > 128) break;  // as in Batches()
    DraftSimulation simulation(head, num_sequences, true);
    simulation.LimitRows(512);
    EXPECT_GE(simulation.Run(0.78, 600), 0.985) << num_sequences;
    // 256 drafts at most, of 256 sequences, gain hardly anything.
    EXPECT_GT(simulation.Run(0.78, 300), num_sequences < 256 ? 1.1 : 0.985) << num_sequences;
  }
}

TEST(DraftPlannerHiddenStatesTest, NoneAreReadOfTooManySequences) {
  DraftSimulation many(kSimulations[4], 5, true, 4);
  for (int step = 0; step < 100; ++step) {
    many.Run(1.0, 1);
    EXPECT_EQ(many.num_read(), 0);
  }
  EXPECT_GE(many.Run(1.0, 1000), 0.99);
  DraftSimulation few(kSimulations[4], 4, true, 4);
  EXPECT_GT(few.Run(1.0, 1000), 1.1);
}

}  // namespace
}  // namespace nereid::llm
