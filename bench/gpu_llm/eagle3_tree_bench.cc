// What trees of an EAGLE-3 head cost and bring on a GPU beside chains, in process, with the shape
// of an 8B model in bf16, a head of 0.85 GB and random weights. Prints CSV.
//
//   gpu_eagle3_tree_bench costs [BATCH...]   the duration of the head's chains with and without
//                                            the tokens beside them, and of verifying
//   gpu_eagle3_tree_bench engine [BATCH...]  tokens a second, greedy, by shape and acceptance
//
// Random weights accept nothing, so that `engine` simulates acceptance: the head runs, but which of
// its tokens are right is drawn at random. At each place the right token is the head's likeliest
// with the first rate of an Acceptance, one of those beside it with the next rates, or none. A
// chain and a tree draw in the same way, and a tree has the likeliest paths by these rates. Its
// chain runs as many rows as it would if the head's probabilities were these rates.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "backends/llm_core/engine/engine.h"
#include "backends/llm_core/speculation/eagle3_drafter.h"
#include "backends/llm_core/speculation/ranked_tree.h"
#include "bench/gpu_llm/random_eagle3_head.h"
#include "bench/gpu_llm/speculation_arguments.h"
#include "bench/gpu_llm/speculation_model.h"

namespace nereid::bench {
namespace {

constexpr int32_t kRanks = 1 + llm::Eagle3Drafter::kSiblings;

struct Acceptance {
  const char* name;
  float rates[kRanks];  // of the token of each rank
};
constexpr Acceptance kHigh = {"0.75 0.10 0.04 0.02", {0.75f, 0.10f, 0.04f, 0.02f}};
constexpr Acceptance kMedium = {"0.55 0.14 0.07 0.04", {0.55f, 0.14f, 0.07f, 0.04f}};
constexpr Acceptance kChainOnly = {"0.75 and nothing beside", {0.75f, 0.0f, 0.0f, 0.0f}};
constexpr Acceptance kNone = {"none", {0.0f, 0.0f, 0.0f, 0.0f}};

// Runs a head, and proposes simulated drafts in the shape of its own.
class SimulatedHead : public llm::Drafter {
 public:
  SimulatedHead(std::unique_ptr<llm::DraftChains> head, const Acceptance& acceptance, bool is_tree)
      : head_(std::move(head), 0.0f), acceptance_(acceptance) {
    if (is_tree) head_.DraftTrees({}, 0.0f);
    for (float path = acceptance_.rates[0]; path >= llm::Eagle3Drafter::kLeastPath;
         path *= acceptance_.rates[0]) {
      ++num_places_;
    }
  }
  std::string_view name() const override { return "simulated head"; }
  bool is_costly() const override { return true; }
  bool proposes_trees() const override { return head_.proposes_trees(); }
  int32_t DraftingSteps(int32_t num_drafts) const override {
    return proposes_trees() ? std::min(num_drafts, num_places_) : num_drafts;
  }
  int32_t max_catch_up() const override { return head_.max_catch_up(); }
  bool reads_hidden_states() const override { return true; }
  void Observe(std::unique_ptr<llm::DrafterState>& state, int32_t first_position,
               const llm::HiddenRows& rows) override {
    head_.Observe(state, first_position, rows);
  }
  void FinishObserving() override { head_.FinishObserving(); }
  void Propose(std::span<llm::DraftQuery> queries) override {
    std::vector<int32_t> most;
    for (llm::DraftQuery& query : queries) {
      most.push_back(query.max_drafts);
      if (!proposes_trees()) continue;
      // Another row is launched before the last token of the chain is known.
      query.max_drafts = std::min(query.max_drafts, num_places_ + 1);
    }
    head_.Propose(queries);
    for (size_t i = 0; i < queries.size(); ++i) {
      queries[i].max_drafts = most[i];
      queries[i].num_steps = 0;
      if (!queries[i].drafts->empty()) Simulate(queries[i]);
    }
  }

 private:
  void Simulate(llm::DraftQuery& query) {
    if (!proposes_trees()) {
      for (int32_t& draft : *query.drafts) draft = DrawRank() == 0 ? kOutputToken : kOtherToken;
      return;
    }
    std::vector<llm::SampledToken> ranks;  // ids: the rank
    for (int32_t depth = 0; depth < DraftingSteps(query.max_drafts); ++depth) {
      for (int32_t rank = 0; rank < kRanks; ++rank)
        ranks.push_back({rank, std::log(std::max(kLeastRate, acceptance_.rates[rank]))});
    }
    query.drafts->clear();
    query.parents->clear();
    llm::GrowComb({ranks, kRanks}, query.max_drafts, *query.drafts, *query.parents);
    int32_t last = -1, right = DrawRank();
    for (int32_t i = 0; i < static_cast<int32_t>(query.drafts->size()); ++i) {
      int32_t& draft = (*query.drafts)[static_cast<size_t>(i)];
      const bool is_right = (*query.parents)[static_cast<size_t>(i)] == last && draft == right;
      draft = is_right ? kOutputToken : kOtherToken + 1 + i;
      if (!is_right) continue;
      last = i;
      right = DrawRank();
    }
  }
  int32_t DrawRank() {
    float draw = std::uniform_real_distribution<float>()(random_);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      draw -= acceptance_.rates[rank];
      if (draw < 0.0f) return rank;
    }
    return -1;
  }

  static constexpr float kLeastRate = 0.01f;  // by which a head that is never right ranks paths
  llm::Eagle3Drafter head_;
  const Acceptance acceptance_;
  int32_t num_places_ = 1;  // of a tree's chain, with the token before which it ends
  std::mt19937 random_{5};
};

void MeasureCosts(const SpeculationArguments& arguments) {
  const RandomEagle3Head random;
  const LoadedModel target = MakeTarget(1);
  const auto head = MakeHead(random, *target.first);
  KeepHiddenStates(random, target);
  std::printf("batch,case,ms\n");
  for (const int32_t batch : arguments.batches) {
    for (const int32_t num_drafts : {4, 8}) {
      for (const int32_t num_siblings : {0, llm::Eagle3Drafter::kSiblings, 15, 0}) {
        std::printf("%d,\"chain of %d drafts, %d tokens beside each\",%.3f\n", batch, num_drafts,
                    num_siblings, HeadMs(*head, batch, num_drafts, num_siblings));
        std::fflush(stdout);
      }
    }
    std::printf("%d,\"step of 1 token\",%.3f\n", batch, StepMs(*target.executor, batch, 0));
    for (const int32_t num_drafts : {4, 7, 8, 15, 31}) {
      for (const bool is_tree : {false, true}) {
        if (batch * (1 + num_drafts) > target.executor->limits().max_num_sampled) continue;
        std::printf("%d,\"verifying a %s of %d drafts\",%.3f\n", batch, is_tree ? "tree" : "chain",
                    num_drafts, StepMs(*target.executor, batch, num_drafts, true, is_tree));
        std::fflush(stdout);
      }
    }
  }
}

struct EngineCase {
  const Acceptance* acceptance;
  bool is_tree;
  int32_t max_drafts;
};

void MeasureEngine(const SpeculationArguments& arguments) {
  std::printf(
      "batch,acceptance by rank,shape,most drafts,tokens a second,of plain,steps with "
      "drafts,drafted,accepted\n");
  std::map<int32_t, double> plain;
  const auto measure = [&](llm::Engine& engine, const EngineCase* one) {
    for (const int32_t batch : arguments.batches) {
      const EngineRate rate = MeasureRate(engine, batch, one == nullptr ? 2 : 1, true);
      if (one == nullptr) {
        plain[batch] = rate.tokens_per_second;
        std::printf("%d,\"\",off,0,", batch);
      } else {
        std::printf("%d,\"%s\",%s,%d,", batch, one->acceptance->name,
                    one->is_tree ? "tree" : "chain", one->max_drafts);
      }
      PrintRate(rate, plain[batch]);
    }
  };
  {
    llm::Engine engine(llm::EngineOptions(), MakeTarget(1).executor);
    measure(engine, nullptr);
  }
  const RandomEagle3Head random;
  LoadedModel target = MakeTarget(1);
  KeepHiddenStates(random, target);
  const std::shared_ptr<llm::Executor> executor = std::move(target.executor);
  for (const EngineCase& one :
       {EngineCase{&kHigh, false, 8}, EngineCase{&kHigh, true, 15}, EngineCase{&kMedium, false, 8},
        EngineCase{&kMedium, true, 15}, EngineCase{&kNone, false, 8}, EngineCase{&kNone, true, 15},
        EngineCase{&kChainOnly, true, 15}, EngineCase{&kHigh, true, 31}}) {
    llm::EngineOptions options;
    options.speculation.drafter = std::make_shared<SimulatedHead>(MakeHead(random, *target.first),
                                                                  *one.acceptance, one.is_tree);
    options.speculation.max_draft_tokens = one.max_drafts;
    PrepareDrafts(*executor, one.max_drafts, one.is_tree, true);
    llm::Engine engine(std::move(options), std::make_unique<AcceptingExecutor>(executor));
    measure(engine, &one);
  }
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  using namespace nereid::bench;
  return RunMeasurement({.name = "gpu_eagle3_tree_bench", .default_batches = {1, 8}},
                        {{"costs", MeasureCosts}, {"engine", MeasureEngine}}, argc, argv);
}
