// The model and the steps of the benchmarks of speculation: the shape of an 8B model in bf16 with
// random weights, whose acceptance of drafts is simulated.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "backends/llm_core/engine/engine.h"
#include "backends/llm_core/speculation/draft_tree.h"
#include "bench/gpu_llm/load_model.h"
#include "bench/gpu_llm/model_shapes.h"

namespace nereid::bench {

using Clock = std::chrono::steady_clock;

inline constexpr int32_t kVocabSize = 128256, kContext = 256;
inline constexpr int32_t kOutputToken = 7, kOtherToken = 8;

inline LoadedModel MakeTarget(int num_gpus) {
  llm::DecoderSpec spec = Shape("8b");
  spec.max_positions = 4096;
  gpu::GpuExecutorOptions options;
  options.dummy = gpu::DummyWeights{};
  options.max_num_sequences = 576;
  options.max_cache_tokens = 128 * 1024;
  std::vector<int32_t> devices(num_gpus);
  std::iota(devices.begin(), devices.end(), 0);
  return LoadModel(spec, options, devices);
}

// Milliseconds of a call.
template <typename Call>
double MsOf(const Call& call) {
  const auto start = Clock::now();
  call();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// There is at least one value.
inline double Median(std::vector<double> values) {
  const auto median = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), median, values.end());
  return *median;
}

// The median duration of a step that `run` runs, after some others.
template <typename Run>
double MedianStepMs(const Run& run) {
  constexpr int kWarmUps = 30, kSteps = 40;
  for (int i = 0; i < kWarmUps; ++i) run();
  std::vector<double> times;
  for (int i = 0; i < kSteps; ++i) times.push_back(MsOf(run));
  return Median(std::move(times));
}

// Prepares steps with drafts, as the load of a model that has a drafter does.
inline void PrepareDrafts(llm::Executor& executor, int32_t max_drafts, bool are_trees,
                          bool returns_hidden_states) {
  const double ms = MsOf([&] {
    CheckOk(executor.PrepareDraftSteps({max_drafts, are_trees, returns_hidden_states}));
  });
  std::printf("preparing steps with drafts took %.0f ms\n", ms);
}

// Fills memory with random bf16 values of magnitudes from 0.0098 to 0.0156.
inline void FillRandom(std::span<uint8_t> bytes, uint32_t& random) {
  for (size_t i = 0; i < bytes.size(); i += 2) {
    random = random * 1664525 + 1013904223;
    const auto value = static_cast<uint16_t>(0x3c20 | (random >> 16 & 0x807f));
    std::memcpy(&bytes[i], &value, 2);
  }
}

// Steps without an engine: `batch` sequences with `num_drafts` drafts each. With `are_trees`, every
// second draft goes on behind the last such one, and the others stand beside it.
inline double StepMs(llm::Executor& executor, int32_t batch, int32_t num_drafts,
                     bool returns_hidden_states = false, bool are_trees = false) {
  const llm::SamplingParams greedy;
  const int32_t blocks_each = kContext / executor.limits().block_size + 2;
  std::vector<std::vector<int32_t>> tables(batch, std::vector<int32_t>(blocks_each));
  const std::vector<int32_t> tokens(kContext + 1, 1);
  std::vector<int32_t> parents;
  for (int32_t t = 0; t < num_drafts && are_trees; ++t)
    parents.push_back(t < 2 ? -1 : t / 2 * 2 - 2);
  llm::StepBatch step;
  for (int32_t i = 0; i < batch; ++i) {
    std::iota(tables[i].begin(), tables[i].end(), i * blocks_each);
    llm::BatchEntry& sequence = step.entries.emplace_back();
    sequence.slot = i;
    sequence.first_token = static_cast<int32_t>(step.token_ids.size());
    sequence.num_tokens = sequence.num_logits = 1 + num_drafts;
    sequence.num_draft_tokens = num_drafts;
    sequence.num_cached = kContext;
    sequence.block_table = tables[i];
    sequence.draft_parents = parents;
    sequence.returns_hidden_states = returns_hidden_states;
    sequence.samples = true;
    sequence.sampling = {&greedy, tokens, 1, {}};
    for (int32_t t = 0; t <= num_drafts; ++t) step.token_ids.push_back(17 * i + t);
  }
  return MedianStepMs([&] {
    CheckOk(executor.Submit(step));
    CheckOk(executor.Collect().status());
  });
}

class Sink : public llm::OutputSink {
 public:
  explicit Sink(std::promise<void> done) : done_(std::move(done)) {}
  bool IsCancelled() const override { return false; }
  void OnOutput(const llm::SequenceOutput& output) override {
    if (output.finish != llm::FinishReason::kNone) done_.set_value();
  }
  void OnError(const Status& status) override { CheckOk(status); }

 private:
  std::promise<void> done_;
};

// Requests of 64 tokens, all at once.
inline double TokensPerSecond(llm::Engine& engine, int32_t batch, int32_t num_output,
                              bool is_greedy = false) {
  std::mt19937 random(3);
  std::vector<std::future<void>> ends;
  const auto start = Clock::now();
  for (int32_t i = 0; i < batch; ++i) {
    auto request = std::make_unique<llm::GenerationRequest>();
    for (int t = 0; t < 64; ++t)
      request->prompt.push_back(static_cast<int32_t>(random() % kVocabSize));
    request->stop.max_tokens = num_output;
    if (!is_greedy) request->sampling.top_p = 1.0f;
    request->sampling.seed = random();
    std::promise<void> done;
    ends.push_back(done.get_future());
    request->sink = std::make_unique<Sink>(std::move(done));
    CheckOk(engine.Enqueue(request));
  }
  for (auto& end : ends) end.wait();
  return batch * num_output / std::chrono::duration<double>(Clock::now() - start).count();
}

// Tokens a second, and what was drafted meanwhile.
struct EngineRate {
  double tokens_per_second = 0.0;  // of the best round
  llm::SpeculationCounts counts;   // of all rounds
  double mean = 0.0;               // tokens a second of all rounds
};

// `num_rounds` rounds, after one that records graphs, chooses algorithms and measures
// steps.
inline EngineRate MeasureRate(llm::Engine& engine, int32_t batch, int num_rounds,
                              bool is_greedy = false) {
  (void)TokensPerSecond(engine, batch, 256, is_greedy);
  const llm::SpeculationCounts before = engine.stats().speculation;
  EngineRate rate;
  double seconds_a_token = 0.0;
  for (int round = 0; round < num_rounds; ++round) {
    const double one = TokensPerSecond(engine, batch, 384, is_greedy);
    rate.tokens_per_second = std::max(rate.tokens_per_second, one);
    seconds_a_token += 1.0 / one / num_rounds;
  }
  rate.mean = 1.0 / seconds_a_token;
  rate.counts = engine.stats().speculation;
  rate.counts.num_drafted -= before.num_drafted;
  rate.counts.num_accepted -= before.num_accepted;
  rate.counts.num_verified_chains -= before.num_verified_chains;
  return rate;
}

// The mean number of draft tokens of an entry that has any.
inline double MeanDrafted(const llm::SpeculationCounts& counts) {
  return static_cast<double>(counts.num_drafted) /
         static_cast<double>(std::max<int64_t>(1, counts.num_verified_chains));
}

// The end of a row of CSV: tokens a second, the same divided by `plain`, a rate without drafts, the
// number of steps of a sequence that had drafts, and the means of drafts and of accepted drafts of
// such a step.
inline void PrintRate(const EngineRate& rate, double plain) {
  std::printf("%.0f,%.3f,%lld,%.2f,%.2f\n", rate.tokens_per_second, rate.tokens_per_second / plain,
              static_cast<long long>(rate.counts.num_verified_chains), MeanDrafted(rate.counts),
              rate.counts.MeanAcceptedLength());
  std::fflush(stdout);
}

// Forwards steps, replaces what the model samples by kOutputToken, and accepts the drafts that are
// kOutputToken, along a chain or a tree. The executor itself accepts none of a tree, so that it
// moves no keys and values. [engine thread]
class AcceptingExecutor : public llm::Executor {
 public:
  explicit AcceptingExecutor(std::shared_ptr<llm::Executor> executor)
      : executor_(std::move(executor)) {}
  const llm::ExecutorLimits& limits() const override { return executor_->limits(); }
  llm::ExecutorFeatures features() const override { return executor_->features(); }
  llm::ExecutorCounts counts() const override { return executor_->counts(); }
  llm::TypicalCosts typical_step_costs() const override { return executor_->typical_step_costs(); }
  Status Submit(const llm::StepBatch& batch) override {
    std::vector<std::vector<int32_t>>& accepted = accepted_.emplace_back();
    for (const llm::BatchEntry& entry : batch.entries) {
      const auto drafts = llm::DraftTokens(batch.token_ids, entry);
      std::vector<int32_t>& path = accepted.emplace_back();
      for (int32_t draft = llm::kTreeRoot;
           (draft = llm::FindChild(drafts, entry.draft_parents, draft, kOutputToken)) >= 0;) {
        path.push_back(draft);
      }
    }
    return executor_->Submit(batch);
  }
  Result<llm::StepResult> Collect() override {
    NEREID_ASSIGN_OR_RETURN(llm::StepResult result, executor_->Collect());
    for (llm::SampledToken& token : result.tokens) {
      if (token.id != llm::kNoToken) token.id = kOutputToken;
    }
    for (size_t i = 0; i < result.accepted.size(); ++i) {
      result.accepted[i].assign(accepted_.front()[i].size(), llm::SampledToken{kOutputToken, 0.0f});
      if (i < result.accepted_drafts.size()) result.accepted_drafts[i] = accepted_.front()[i];
    }
    accepted_.pop_front();
    return result;
  }

 private:
  const std::shared_ptr<llm::Executor> executor_;
  // For each step in flight and each of its entries: the indices of the drafts that are accepted.
  std::deque<std::vector<std::vector<int32_t>>> accepted_;
};

}  // namespace nereid::bench
