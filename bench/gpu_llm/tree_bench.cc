// What trees of draft tokens and Medusa heads take on a GPU, in process, with the shape of an 8B
// model in bf16 and random weights. Prints CSV.
//
//   gpu_tree_bench steps [BATCH...]   the duration of a step by the tokens that it verifies, as a
//                                     tree and as a chain, also with drafts that are moved
//   gpu_tree_bench medusa [BATCH...]  what four Medusa heads of 1.08 GB each take
//   gpu_tree_bench engine [BATCH...]  tokens a second with these heads, greedy, by the drafts of a
//                                     tree
//   gpu_tree_bench lookahead [BATCH...]  tokens a second with lookahead decoding, by its sizes, and
//                                     with the n-gram drafter
//
// Random weights accept nothing, so that `engine` simulates acceptance: the heads run, but which of
// their drafts are right is drawn by kRankRates. For `lookahead` the model writes made-up texts:
// one in which hardly any token comes twice, so that nothing is accepted, and one of 100 phrases of
// 4 tokens in random order, of which all tokens but a phrase's first one can be learned.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <queue>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/gpu_llm/model/device_medusa_heads.h"
#include "backends/llm_core/engine/engine.h"
#include "backends/llm_core/speculation/drafter.h"
#include "backends/llm_core/speculation/lookahead_drafter.h"
#include "backends/llm_core/speculation/lookup_drafters.h"
#include "bench/gpu_llm/made_up_text.h"
#include "bench/gpu_llm/speculation_arguments.h"
#include "bench/gpu_llm/speculation_model.h"

namespace nereid::bench {
namespace {

// A step with one tree for each of `batch` sequences behind `context` tokens. The drafts of
// `accepted` are the last ones of the tree, behind those that fill it, so that their keys and
// values move; the others follow the newest token or each other in pairs.
class TreeSteps {
 public:
  TreeSteps(gpu::GpuExecutor& executor, int32_t batch, int32_t context, int32_t num_drafts,
            bool is_tree)
      : executor_(executor),
        tokens_(static_cast<size_t>(context) + 1, 1),
        tables_(static_cast<size_t>(batch)),
        num_drafts_(num_drafts),
        is_tree_(is_tree),
        accepted_(static_cast<size_t>(batch)) {
    const int32_t blocks_each = (context + num_drafts) / executor.limits().block_size + 1;
    for (size_t i = 0; i < tables_.size(); ++i) {
      tables_[i].resize(static_cast<size_t>(blocks_each));
      std::iota(tables_[i].begin(), tables_[i].end(), static_cast<int32_t>(i) * blocks_each);
    }
  }
  // Makes the next `count` tokens of each sequence drafts that are accepted.
  void AcceptDrafts(int32_t count) {
    for (int32_t k = 0; k < count; ++k) {
      const llm::StepResult result = Run();
      for (size_t i = 0; i < accepted_.size(); ++i) accepted_[i].push_back(result.tokens[i].id);
    }
  }
  llm::StepResult Run() {
    llm::StepBatch step;
    std::vector<std::vector<int32_t>> parents(tables_.size());
    for (size_t i = 0; i < tables_.size(); ++i) {
      const auto num_fillers = num_drafts_ - static_cast<int32_t>(accepted_[i].size());
      llm::BatchEntry& sequence = step.entries.emplace_back();
      sequence.slot = static_cast<int32_t>(i);
      sequence.first_token = static_cast<int32_t>(step.token_ids.size());
      sequence.num_tokens = sequence.num_logits = 1 + num_drafts_;
      sequence.num_draft_tokens = num_drafts_;
      sequence.num_cached = static_cast<int32_t>(tokens_.size()) - 1;
      sequence.block_table = tables_[i];
      sequence.samples = true;
      sequence.sampling = {&greedy_, tokens_, 1, {}};
      step.token_ids.push_back(17 * static_cast<int32_t>(i) + 1);
      for (int32_t t = 0; t < num_fillers; ++t) {
        step.token_ids.push_back(kVocabSize - 1 - t);
        parents[i].push_back(t % 2 == 0 ? -1 : t - 1);
      }
      for (size_t k = 0; k < accepted_[i].size(); ++k) {
        step.token_ids.push_back(accepted_[i][k]);
        parents[i].push_back(k == 0 ? -1 : num_fillers + static_cast<int32_t>(k) - 1);
      }
      if (is_tree_) sequence.draft_parents = parents[i];
    }
    CheckOk(executor_.Submit(step));
    return Checked(executor_.Collect());
  }
  // The median of a step's duration.
  double Ms() {
    return MedianStepMs([&] {
      num_accepted_ = 0;
      const llm::StepResult result = Run();
      for (const auto& accepted : result.accepted) num_accepted_ += accepted.size();
    });
  }
  // Drafts that the last step of Ms() accepted, of all sequences.
  size_t num_accepted() const { return num_accepted_; }

 private:
  gpu::GpuExecutor& executor_;
  const llm::SamplingParams greedy_;
  const std::vector<int32_t> tokens_;
  std::vector<std::vector<int32_t>> tables_;
  const int32_t num_drafts_;
  const bool is_tree_;
  std::vector<std::vector<int32_t>> accepted_;  // of each sequence
  size_t num_accepted_ = 0;
};

void MeasureTrees(const SpeculationArguments& arguments) {
  const LoadedModel target = MakeTarget(1);
  gpu::GpuExecutor* const executor = target.first;
  constexpr int32_t kAccepted = 3;
  std::printf("batch,context,case,tokens verified a sequence,step ms,of a plain step\n");
  for (const int32_t batch : arguments.batches) {
    for (const int32_t context : {256, 2048}) {
      double plain = 0.0;
      const auto print = [&](const char* what, int32_t num_drafts, TreeSteps& steps) {
        const double ms = steps.Ms();
        if (num_drafts == 0) plain = ms;
        std::printf("%d,%d,\"%s\",%d,%.3f,%.3f\n", batch, context, what, 1 + num_drafts, ms,
                    ms / plain);
        std::fflush(stdout);
      };
      TreeSteps alone(*executor, batch, context, 0, false);
      print("plain", 0, alone);
      for (const int32_t num_tokens : {8, 16, 32, 64}) {
        if (batch * num_tokens > executor->limits().max_num_sampled) break;
        TreeSteps chain(*executor, batch, context, num_tokens - 1, false);
        print("chain", num_tokens - 1, chain);
        TreeSteps tree(*executor, batch, context, num_tokens - 1, true);
        print("tree, none accepted", num_tokens - 1, tree);
        tree.AcceptDrafts(kAccepted);
        print("tree, drafts accepted and moved", num_tokens - 1, tree);
        std::printf("%d,%d,\"drafts accepted of %d\",%d,%zu,\n", batch, context, batch * kAccepted,
                    num_tokens, tree.num_accepted());
      }
    }
  }
}

// The weights of a Medusa head for the model, in bf16, with random values.
class RandomMedusa {
 public:
  static constexpr int32_t kHeads = 4;

  RandomMedusa() {
    constexpr int64_t kHidden = 4096;
    heads_.model.spec.hidden_size = kHidden;
    heads_.num_heads = kHeads;
    heads_.num_blocks = 1;
    heads_.draft_vocab_size = kVocabSize;
    for (int32_t head = 0; head < kHeads; ++head) {
      const auto set = [&](llm::WeightKind kind, const llm::ResolvedWeight& weight) {
        heads_.model.weights[{head, kind, llm::kNoExpert}] = weight;
      };
      set(llm::WeightKind::kResidualBlock, Random(kHidden, kHidden));
      set(llm::WeightKind::kResidualBlockBias, Random(kHidden, 0));
      set(llm::WeightKind::kLmHead, Random(kVocabSize, kHidden));
    }
  }
  const llm::MedusaWeights& heads() const { return heads_; }

 private:
  llm::ResolvedWeight Random(int64_t rows, int64_t columns) {
    std::vector<uint8_t>& bytes = bytes_.emplace_back(2 * rows * std::max<int64_t>(1, columns));
    FillRandom(bytes, random_);
    llm::ResolvedWeight weight;
    weight.source = columns > 0 ? llm::Matrix("w", rows, columns) : llm::Vector("b", rows);
    weight.tensor = {llm::CheckpointDataType::kBF16, weight.source.tensor_shape, bytes};
    return weight;
  }

  uint32_t random_ = 1;
  std::deque<std::vector<uint8_t>> bytes_;
  llm::MedusaWeights heads_;
};

std::unique_ptr<gpu::DeviceMedusaHeads> MakeMedusa(const RandomMedusa& random,
                                                   gpu::GpuExecutor& executor) {
  const int32_t last = executor.spec().num_layers();
  CheckOk(executor.CaptureHiddenStates(std::span(&last, 1), llm::HiddenStatePlace::kDevice));
  gpu::MedusaOptions options;
  options.num_kept_rows = executor.limits().max_num_sequences;
  options.norm = executor.spec().norm;
  options.final_norm = executor.weights().final_norm;
  options.captured = [&decoder = executor.decoder()] { return decoder.captured(); };
  options.stream = executor.stream();
  return Checked(gpu::DeviceMedusaHeads::Create(random.heads(), options));
}

void MeasureMedusa(const SpeculationArguments& arguments) {
  const RandomMedusa random;
  const LoadedModel target = MakeTarget(1);
  gpu::GpuExecutor* const executor = target.first;
  const auto heads = MakeMedusa(random, *executor);
  std::vector<int32_t> kept;
  heads->pool()->Take(heads->pool()->num_free(), kept);
  std::printf("batch,case,value\n");
  for (const int32_t batch : arguments.batches) {
    std::printf("%d,\"step ms\",%.3f\n", batch, StepMs(*executor, batch, 0));
    for (const int32_t num_heads : {1, 2, 4}) {
      const auto rows = std::span(kept).first(static_cast<size_t>(batch));
      std::vector<llm::SampledToken> tokens;
      std::vector<double> times;
      for (int round = 0; round < 60; ++round) {
        heads->Keep({.num_rows = batch}, rows);
        const double took = MsOf([&] {
          CheckOk(heads->FinishKeeping());
          CheckOk(heads->Run(rows, num_heads, 10, tokens));
        });
        if (round >= 20) times.push_back(took);
      }
      const double ms = Median(std::move(times));
      const double bytes = 2.0 * 4096 * (4096 + kVocabSize) * num_heads *
                           ((batch + 63) / 64);  // passes over the weights
      std::printf("%d,\"ms of %d heads\",%.3f\n", batch, num_heads, ms);
      std::printf("%d,\"TB/s of %d heads\",%.2f\n", batch, num_heads, bytes / ms / 1e9);
      std::fflush(stdout);
    }
  }
}

// Medusa heads propose an explicit tree; which of its drafts are right is drawn at random. At depth
// d (from 0) the right token has rank k with the probability kRankRates[k] * kDepthFactor^d, or is
// none of the head's.
constexpr float kRankRates[] = {0.60f, 0.12f, 0.06f, 0.04f, 0.03f, 0.02f, 0.02f, 0.01f};
constexpr float kDepthFactor = 0.85f;

// A draft of a tree: the draft that it follows, the drafts before it on its path, and its rank
// among the tokens of its head.
struct Choice {
  int32_t parent, depth, rank;
};

// The `count` likeliest paths by these rates, the likeliest first.
std::vector<Choice> LikeliestChoices(int32_t count) {
  struct Path {
    double probability;
    Choice choice;
  };
  const auto comes_later = [](const Path& a, const Path& b) {
    return a.probability < b.probability;
  };
  std::priority_queue<Path, std::vector<Path>, decltype(comes_later)> open(comes_later);
  const auto open_children = [&](int32_t parent, int32_t depth, double probability) {
    if (depth == RandomMedusa::kHeads) return;
    for (int32_t rank = 0; rank < static_cast<int32_t>(std::size(kRankRates)); ++rank) {
      open.push(
          {probability * kRankRates[rank] * std::pow(kDepthFactor, depth), {parent, depth, rank}});
    }
  };
  std::vector<Choice> choices;
  open_children(-1, 0, 1.0);
  while (static_cast<int32_t>(choices.size()) < count) {
    const Path path = open.top();
    open.pop();
    choices.push_back(path.choice);
    open_children(static_cast<int32_t>(choices.size()) - 1, path.choice.depth + 1,
                  path.probability);
  }
  return choices;
}

// Runs the heads, and proposes the tree of these choices with simulated drafts: the right ones are
// kOutputToken.
class SimulatedMedusa : public llm::Drafter {
 public:
  SimulatedMedusa(std::unique_ptr<llm::MedusaHeads> heads, std::vector<Choice> choices)
      : heads_(std::move(heads)), choices_(std::move(choices)) {}
  std::string_view name() const override { return "simulated medusa"; }
  bool is_costly() const override { return true; }
  bool proposes_trees() const override { return true; }
  int32_t DraftingSteps(int32_t) const override { return 1; }
  bool reads_hidden_states() const override { return true; }
  void Observe(std::unique_ptr<llm::DrafterState>& owned, int32_t first_position,
               const llm::HiddenRows& rows) override {
    if (rows.num_rows == 0) return;
    if (owned == nullptr) owned = std::make_unique<State>(heads_->pool());
    auto& state = static_cast<State&>(*owned);
    state.position = first_position + rows.num_rows - 1;
    heads_->Keep(rows.Part(rows.num_rows - 1, 1), state.row);
  }
  void FinishObserving() override { CheckOk(heads_->FinishKeeping()); }
  void Propose(std::span<llm::DraftQuery> queries) override {
    std::vector<int32_t> rows;
    for (llm::DraftQuery& query : queries) {
      if (*query.state == nullptr) continue;
      const auto& state = static_cast<const State&>(**query.state);
      if (state.position != static_cast<int32_t>(query.tokens.size()) - 2) continue;
      rows.push_back(state.row[0]);
      FillTree(query);
    }
    if (rows.empty()) return;
    CheckOk(heads_->Run(rows, heads_->num_heads(), static_cast<int32_t>(std::size(kRankRates)),
                        tokens_));
  }

 private:
  struct State : llm::DrafterState {
    explicit State(std::shared_ptr<llm::RowPool> rows) : pool(std::move(rows)) {
      pool->Take(1, row);
    }
    ~State() override { pool->Release(row); }
    const std::shared_ptr<llm::RowPool> pool;
    std::vector<int32_t> row;
    int32_t position = -1;  // of the token whose hidden state is kept
  };

  void FillTree(llm::DraftQuery& query) {
    int32_t last = -1, depth = 0, right = DrawRank(0);
    const auto count = std::min(static_cast<size_t>(query.max_drafts), choices_.size());
    for (size_t i = 0; i < count; ++i) {
      const bool is_right = choices_[i].parent == last && choices_[i].rank == right;
      query.drafts->push_back(is_right ? kOutputToken : kOtherToken + 1 + static_cast<int32_t>(i));
      query.parents->push_back(choices_[i].parent);
      if (!is_right) continue;
      last = static_cast<int32_t>(i);
      right = DrawRank(++depth);
    }
  }
  int32_t DrawRank(int32_t depth) {
    float draw = std::uniform_real_distribution<float>()(random_);
    for (int32_t rank = 0; rank < static_cast<int32_t>(std::size(kRankRates)); ++rank) {
      draw -= kRankRates[rank] * std::pow(kDepthFactor, static_cast<float>(depth));
      if (draw < 0.0f) return rank;
    }
    return -1;
  }

  const std::unique_ptr<llm::MedusaHeads> heads_;
  const std::vector<Choice> choices_;
  std::vector<llm::SampledToken> tokens_;
  std::mt19937 random_{5};
};

void MeasureEngine(const SpeculationArguments& arguments) {
  const RandomMedusa random;
  std::printf(
      "batch,drafts of a tree,tokens a second,of plain,steps with drafts,drafted,accepted\n");
  std::map<int32_t, double> plain;
  for (const int32_t num_drafts : {0, 15, 31, 63}) {
    LoadedModel target = MakeTarget(1);
    llm::EngineOptions options;
    if (num_drafts > 0) {
      options.speculation.drafter = std::make_shared<SimulatedMedusa>(
          MakeMedusa(random, *target.first), LikeliestChoices(num_drafts));
      PrepareDrafts(*target.executor, num_drafts, true, true);
      options.speculation.max_draft_tokens = num_drafts;
    }
    llm::Engine engine(std::move(options),
                       std::make_unique<AcceptingExecutor>(std::move(target.executor)));
    for (const int32_t batch : arguments.batches) {
      const EngineRate rate = MeasureRate(engine, batch, 2, true);
      if (num_drafts == 0) plain[batch] = rate.tokens_per_second;
      std::printf("%d,%d,", batch, num_drafts);
      PrintRate(rate, plain[batch]);
    }
  }
}

void MeasureLookahead(const SpeculationArguments& arguments) {
  struct Case {
    const char* name;
    std::shared_ptr<llm::Drafter> drafter;
    int64_t max_drafts;
  };
  std::vector<Case> cases = {{"off", nullptr, 0},
                             {"ngram", std::make_shared<llm::NgramDrafter>(), 8}};
  for (const auto& [name, sizes] :
       {std::pair("lookahead=4,3,4", llm::LookaheadSizes{4, 3, 4}),
        std::pair("lookahead=7,5,7", llm::LookaheadSizes{7, 5, 7}),
        std::pair("lookahead=15,5,15", llm::LookaheadSizes{15, 5, 15})}) {
    cases.push_back({name, std::make_shared<llm::LookaheadDrafter>(sizes), sizes.num_drafts()});
  }
  const std::shared_ptr<llm::Executor> target = MakeTarget(1).executor;
  PrepareDrafts(*target, static_cast<int32_t>(cases.back().max_drafts), true, false);
  PrepareDrafts(*target, 8, false, false);
  std::printf("batch,text,drafter,tokens a second,of off,steps with drafts,drafted,accepted\n");
  for (const auto& [text, num_phrases] :
       {std::pair("hardly any token twice", 0), std::pair("100 phrases of 4 tokens", 100)}) {
    std::map<int32_t, double> plain;
    for (const Case& one : cases) {
      llm::EngineOptions options;
      options.speculation.drafter = one.drafter;
      if (one.drafter != nullptr)
        options.speculation.max_draft_tokens = static_cast<int32_t>(one.max_drafts);
      llm::Engine engine(std::move(options), std::make_unique<MadeUpTextExecutor>(
                                                 target, MadeUpText(num_phrases, kVocabSize)));
      for (const int32_t batch : arguments.batches) {
        const EngineRate rate = MeasureRate(engine, batch, 1, true);
        if (one.drafter == nullptr) plain[batch] = rate.tokens_per_second;
        std::printf("%d,\"%s\",\"%s\",", batch, text, one.name);
        PrintRate(rate, plain[batch]);
      }
    }
  }
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  using namespace nereid::bench;
  return RunMeasurement({.name = "gpu_tree_bench", .default_batches = {1, 8}},
                        {{"steps", MeasureTrees},
                         {"medusa", MeasureMedusa},
                         {"engine", MeasureEngine},
                         {"lookahead", MeasureLookahead}},
                        argc, argv);
}
