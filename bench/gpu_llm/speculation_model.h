// The model and the steps of the benchmarks of speculation: the shape of an 8B model in bf16 with
// random weights.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "backends/gpu_llm/gpu_executor.h"
#include "backends/gpu_llm/sharded_executor.h"
#include "backends/llm_core/engine/engine.h"

namespace nereid::bench {

using Clock = std::chrono::steady_clock;

inline constexpr int32_t kVocabSize = 128256, kContext = 256;
inline constexpr int32_t kOutputToken = 7, kOtherToken = 8;

template <typename T>
T Checked(Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.status().message().c_str());
  std::exit(1);
}

// The model's executor, and that of its first GPU.
struct Target {
  std::unique_ptr<llm::Executor> executor;
  gpu::GpuExecutor* first = nullptr;
};

inline Target MakeTarget(int num_gpus) {
  llm::DecoderModel model;
  llm::DecoderSpec& spec = model.spec;
  spec.architecture = "llama";
  spec.vocab_size = kVocabSize;
  spec.hidden_size = 4096;
  spec.intermediate_size = 14336;
  spec.num_heads = 32;
  spec.num_kv_heads = 8;
  spec.head_dim = 128;
  spec.max_positions = 4096;
  spec.norm.epsilon = 1e-5f;
  spec.attention_scale = 1.0f / std::sqrt(128.0f);
  llm::RopeSpec rope;
  rope.dim = spec.head_dim;
  for (int32_t i = 0; i < rope.dim / 2; ++i)
    rope.inv_freq.push_back(std::pow(500000.0f, -2.0f * static_cast<float>(i) / 128.0f));
  spec.ropes = {rope};
  spec.layers.resize(32);
  gpu::GpuExecutorOptions options;
  options.dummy = gpu::DummyWeights{};
  options.max_num_sequences = 576;
  options.max_cache_tokens = 128 * 1024;
  if (num_gpus == 1) {
    auto executor = Checked(gpu::GpuExecutor::Create(std::move(model), options));
    gpu::GpuExecutor* const first = executor.get();
    return {std::move(executor), first};
  }
  std::vector<int32_t> devices(num_gpus);
  std::iota(devices.begin(), devices.end(), 0);
  auto executor = Checked(gpu::ShardedExecutor::Create(model, options, devices));
  gpu::GpuExecutor* const first = &executor->rank(0);
  return {std::move(executor), first};
}

// Steps without an engine: `batch` sequences with `num_drafts` drafts each.
inline double StepMs(llm::Executor& executor, int32_t batch, int32_t num_drafts,
                     bool returns_hidden_states = false) {
  const llm::SamplingParams greedy;
  const int32_t blocks_each = kContext / executor.limits().block_size + 2;
  std::vector<std::vector<int32_t>> tables(batch, std::vector<int32_t>(blocks_each));
  const std::vector<int32_t> tokens(kContext + 1, 1);
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
    sequence.returns_hidden_states = returns_hidden_states;
    sequence.samples = true;
    sequence.sampling = {&greedy, tokens, 1, {}};
    for (int32_t t = 0; t <= num_drafts; ++t) step.token_ids.push_back(17 * i + t);
  }
  constexpr int kWarmUps = 30, kSteps = 40;
  std::vector<double> times;
  for (int i = 0; i < kWarmUps + kSteps; ++i) {
    const auto start = Clock::now();
    if (!executor.Submit(step).ok() || !executor.Collect().ok()) {
      std::fprintf(stderr, "a step failed\n");
      std::exit(1);
    }
    const std::chrono::duration<double, std::milli> took = Clock::now() - start;
    if (i >= kWarmUps) times.push_back(took.count());
  }
  std::nth_element(times.begin(), times.begin() + kSteps / 2, times.end());
  return times[kSteps / 2];
}

class Sink : public llm::OutputSink {
 public:
  explicit Sink(std::promise<void> done) : done_(std::move(done)) {}
  bool IsCancelled() const override { return false; }
  void OnOutput(const llm::SequenceOutput& output) override {
    if (output.finish != llm::FinishReason::kNone) done_.set_value();
  }
  void OnError(const Status& status) override {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    std::exit(1);
  }

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
    if (const Status queued = engine.Enqueue(request); !queued.ok()) {
      std::fprintf(stderr, "%s\n", queued.message().c_str());
      std::exit(1);
    }
  }
  for (auto& end : ends) end.wait();
  return batch * num_output / std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace nereid::bench
