// What draft tokens cost and bring on a GPU, in process, with the shape of an 8B model in bf16 and
// random weights. Prints CSV.
//
//   gpu_speculation_bench verify [BATCH...]  the duration of a step by its draft tokens, 256 tokens
//                                            of context
//   gpu_speculation_bench engine [BATCH...]  tokens a second with drafters and simulated acceptance
//   gpu_speculation_bench eagle3 [BATCH...]  the same with an EAGLE-3 head of 0.85 GB, greedy, and
//                                            what its drafts take
//   gpu_speculation_bench trace [BATCH...]   where the time of each step with that head goes; of
//                                            any number of sequences
//
// `--gpus N` in front of the batches divides the model among N GPUs; the head is on the first.
//
// Random weights accept nothing, so that `engine` simulates acceptance: every sampled token is
// replaced by kOutputToken, and each draft is that token with a fixed probability. So drafts that
// are compared with the output, because they did not pay, match as often as verified ones. Drafting
// itself costs nothing in these rows. The rows "ngram" have the n-gram drafter on sampled output,
// in which hardly anything matches.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/gpu_llm/model/eagle3_layer.h"
#include "backends/llm_core/engine/engine.h"
#include "backends/llm_core/speculation/eagle3_drafter.h"
#include "backends/llm_core/speculation/lookup_drafters.h"
#include "bench/gpu_llm/draft_trace.h"
#include "bench/gpu_llm/random_eagle3_head.h"
#include "bench/gpu_llm/speculation_arguments.h"
#include "bench/gpu_llm/speculation_model.h"

namespace nereid::bench {
namespace {

constexpr int32_t kMaxDrafts = 8;  // as engines have by default

void MeasureVerifying(const SpeculationArguments& arguments) {
  const auto executor = MakeTarget(arguments.num_gpus).executor;
  std::printf("batch,tokens verified a sequence,step ms,of a plain step\n");
  for (const int32_t batch : arguments.batches) {
    double plain = 0.0;
    for (int32_t num_drafts = 0; num_drafts <= 8; ++num_drafts) {
      const double ms = StepMs(*executor, batch, num_drafts);
      if (num_drafts == 0) plain = ms;
      std::printf("%d,%d,%.3f,%.3f\n", batch, 1 + num_drafts, ms, ms / plain);
      std::fflush(stdout);
    }
  }
}

// Proposes as many tokens as it may. Each is the right one with the probability `rate`.
class RepeatingDrafter : public llm::Drafter {
 public:
  explicit RepeatingDrafter(double rate) : is_right_(rate) {}
  std::string_view name() const override { return "repeating"; }
  void Propose(std::span<llm::DraftQuery> queries) override {
    for (llm::DraftQuery& query : queries) {
      for (int32_t i = 0; i < query.max_drafts; ++i)
        query.drafts->push_back(is_right_(random_) ? kOutputToken : kOtherToken);
      query.match_class = llm::AcceptanceRates::kNumClasses - 1;
    }
  }

 private:
  std::bernoulli_distribution is_right_;
  std::mt19937 random_{5};
};

// Drafts with a head, and replaces its drafts as RepeatingDrafter draws them.
class RepeatingHead : public llm::Drafter {
 public:
  RepeatingHead(std::unique_ptr<llm::DraftChains> head, double rate)
      : head_(std::move(head), 0.0f), is_right_(rate) {}
  std::string_view name() const override { return "repeating head"; }
  bool is_costly() const override { return true; }
  int32_t max_catch_up() const override { return head_.max_catch_up(); }
  bool reads_hidden_states() const override { return true; }
  void Observe(std::unique_ptr<llm::DrafterState>& state, int32_t first_position,
               const llm::HiddenRows& rows) override {
    head_.Observe(state, first_position, rows);
  }
  void FinishObserving() override { head_.FinishObserving(); }
  void Propose(std::span<llm::DraftQuery> queries) override {
    head_.Propose(queries);
    for (llm::DraftQuery& query : queries) {
      for (int32_t& draft : *query.drafts) draft = is_right_(random_) ? kOutputToken : kOtherToken;
    }
  }

 private:
  llm::Eagle3Drafter head_;
  std::bernoulli_distribution is_right_;
  std::mt19937 random_{5};
};

// A rate at which 7 drafts yield `tokens` a step.
double RateFor(double tokens) {
  double low = 0.0, high = 1.0;
  for (int i = 0; i < 50; ++i) {
    const double rate = (low + high) / 2;
    double yield = 1.0;
    for (int k = 1; k <= 7; ++k) yield += std::pow(rate, k);
    (yield < tokens ? low : high) = rate;
  }
  return low;
}

void MeasureEngine(const SpeculationArguments& arguments) {
  struct Case {
    const char* name;
    std::shared_ptr<llm::Drafter> drafter;
    bool is_simulated;
  };
  const Case cases[] = {
      {"off", nullptr, false},
      {"ngram, nothing matches", std::make_shared<llm::NgramDrafter>(), false},
      {"simulated, none accepted", std::make_shared<RepeatingDrafter>(0.0), true},
      {"simulated, 2.0 tokens of 7 drafts", std::make_shared<RepeatingDrafter>(RateFor(2.0)), true},
      {"simulated, 4.0 tokens of 7 drafts", std::make_shared<RepeatingDrafter>(RateFor(4.0)),
       true}};
  std::printf("batch,drafter,tokens a second,of off,drafted,accepted,steps with drafts\n");
  std::map<int32_t, double> plain;
  for (const Case& one : cases) {
    std::unique_ptr<llm::Executor> executor = MakeTarget(arguments.num_gpus).executor;
    if (one.drafter != nullptr) PrepareDrafts(*executor, kMaxDrafts, false, false);
    if (one.is_simulated) executor = std::make_unique<AcceptingExecutor>(std::move(executor));
    llm::EngineOptions options;
    options.speculation.drafter = one.drafter;
    llm::Engine engine(std::move(options), std::move(executor));
    for (const int32_t batch : arguments.batches) {
      const EngineRate measured = MeasureRate(engine, batch, 2);
      const double rate = measured.tokens_per_second;
      const llm::SpeculationCounts& counts = measured.counts;
      if (one.drafter == nullptr) plain[batch] = rate;
      std::printf("%d,\"%s\",%.0f,%.3f,%lld,%lld,%lld\n", batch, one.name, rate,
                  rate / plain[batch], static_cast<long long>(counts.num_drafted),
                  static_cast<long long>(counts.num_accepted),
                  static_cast<long long>(counts.num_verified_chains));
      std::fflush(stdout);
    }
  }
}

std::unique_ptr<gpu::Eagle3Layer> MakePreparedHead(const RandomEagle3Head& random,
                                                   const LoadedModel& target) {
  auto head = MakeHead(random, *target.first);
  KeepHiddenStates(random, target);
  PrepareDrafts(*target.executor, kMaxDrafts, false, true);
  return head;
}

void MeasureEagle3Steps(llm::Executor& executor, gpu::Eagle3Layer* head, int32_t batch) {
  const char* const with = head != nullptr ? "with" : "without";
  constexpr int32_t kMostSampled = 576;  // of a step
  for (const int32_t num_drafts : {0, 3, 7}) {
    if (batch * (1 + num_drafts) > kMostSampled) break;
    std::printf("%d,\"step ms of %d tokens %s hidden states\",%.3f\n", batch, 1 + num_drafts, with,
                StepMs(executor, batch, num_drafts, head != nullptr));
  }
  for (const int32_t num_drafts : {1, 3, 7}) {
    if (head == nullptr) break;
    std::printf("%d,\"head ms for %d drafts of each\",%.3f\n", batch, num_drafts,
                HeadMs(*head, batch, num_drafts));
  }
  std::fflush(stdout);
}

void MeasureEagle3(const SpeculationArguments& arguments) {
  struct Case {
    const char* name;
    double rate;
    bool has_head;
  };
  const RandomEagle3Head random;
  std::printf("batch,case,value\n");
  // Without drafts also at the end: the first steps of a process choose the algorithms of products.
  const Case cases[] = {{"without drafts", 0.0, false},
                        {"none accepted", 0.0, true},
                        {"4.0 tokens of 7 drafts", RateFor(4.0), true},
                        {"without drafts, again", -1.0, false}};
  std::map<int32_t, double> plain;                 // the best of both
  std::map<int32_t, std::vector<double>> of_head;  // by case
  for (const Case& one : cases) {
    LoadedModel target = MakeTarget(arguments.num_gpus);
    std::unique_ptr<gpu::Eagle3Layer> head;
    if (one.has_head) head = MakePreparedHead(random, target);
    if (one.rate == 0.0) {
      for (const int32_t batch : arguments.batches)
        MeasureEagle3Steps(*target.executor, head.get(), batch);
    }
    llm::EngineOptions options;
    std::unique_ptr<llm::Executor> repeating = std::move(target.executor);
    if (one.has_head) {
      options.speculation.drafter = std::make_shared<RepeatingHead>(std::move(head), one.rate);
      repeating = std::make_unique<AcceptingExecutor>(std::move(repeating));
    }
    llm::Engine engine(std::move(options), std::move(repeating));
    for (const int32_t batch : arguments.batches) {
      const int num_rounds = batch == 1 ? 4 : 2;  // few outcomes each
      const EngineRate measured = MeasureRate(engine, batch, num_rounds, true);
      const llm::SpeculationCounts& counts = measured.counts;
      const double rate = measured.mean;
      if (one.has_head) of_head[batch].push_back(rate);
      if (!one.has_head) plain[batch] = std::max(plain[batch], rate);
      std::printf("%d,\"tokens a second, %s\",%.0f\n", batch, one.name, rate);
      std::printf("%d,\"drafted and accepted of each of %lld chains, %s\",%.2f %.2f\n", batch,
                  static_cast<long long>(counts.num_verified_chains), one.name, MeanDrafted(counts),
                  counts.MeanAcceptedLength());
      std::fflush(stdout);
    }
  }
  for (const int32_t batch : arguments.batches) {
    std::printf("%d,\"of plain, %s\",%.3f\n", batch, cases[1].name,
                of_head[batch][0] / plain[batch]);
    std::printf("%d,\"of plain, %s\",%.3f\n", batch, cases[2].name,
                of_head[batch][1] / plain[batch]);
  }
}

// Four runs of a batch one after the other, so that sizes of steps that are new in the first one
// are known in the last.
void TraceEagle3(const SpeculationArguments& arguments) {
  const RandomEagle3Head random;
  for (const int32_t batch : arguments.batches) {
    double plain = 0.0;
    for (const bool has_head : {false, true}) {
      LoadedModel target = MakeTarget(arguments.num_gpus);
      const auto trace = std::make_shared<DraftTrace>();
      llm::EngineOptions options;
      std::unique_ptr<llm::Executor> traced;
      if (has_head) {
        std::unique_ptr<gpu::Eagle3Layer> head = MakePreparedHead(random, target);
        options.speculation.drafter = std::make_shared<TracedDrafter>(
            std::make_shared<RepeatingHead>(std::move(head), RateFor(4.0)), trace);
        traced = std::make_unique<AcceptingExecutor>(std::move(target.executor));
      } else {
        traced = std::move(target.executor);
      }
      traced = std::make_unique<TracedExecutor>(std::move(traced), trace);
      llm::Engine engine(std::move(options), std::move(traced));
      for (int round = 0; round < (has_head ? 4 : 2); ++round) {
        const double rate = TokensPerSecond(engine, batch, 384, true);
        const std::vector<DraftStep> steps = trace->Take();
        if (!has_head) plain = std::max(plain, rate);
        std::printf("%d,%s head,run %d,%.0f tokens a second,%.3f of plain\n", batch,
                    has_head ? "with" : "without", round, rate, rate / plain);
        PrintDraftSteps(batch, steps);
        if (has_head && round % 3 == 0) PrintEachDraftStep(batch, steps);
      }
    }
  }
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  using namespace nereid::bench;
  return RunMeasurement(
      {.name = "gpu_speculation_bench", .default_batches = {1, 8, 64}, .takes_num_gpus = true},
      {{"verify", MeasureVerifying},
       {"engine", MeasureEngine},
       {"eagle3", MeasureEagle3},
       {"trace", TraceEagle3}},
      argc, argv);
}
