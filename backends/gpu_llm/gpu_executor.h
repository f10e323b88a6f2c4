// The executor of one GPU: plans a step on the host, uploads the plan in one copy, runs the decoder
// (decode steps as recorded graphs) and samples. A second step may be submitted while one runs: all
// is ordered by one stream, and what the host and the device share exists twice. [engine thread]
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/gpu_llm/comm/peer_group.h"
#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/cuda/stream.h"
#include "backends/gpu_llm/draw_plan.h"
#include "backends/gpu_llm/kernels/sampling/sample.h"
#include "backends/gpu_llm/model/decoder.h"
#include "backends/gpu_llm/model/gpu_weights.h"
#include "backends/gpu_llm/model/sharding.h"
#include "backends/gpu_llm/operator_timer.h"
#include "backends/gpu_llm/step_graphs.h"
#include "backends/gpu_llm/step_plan.h"
#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/model/architecture.h"
#include "backends/llm_core/sampling/sampler.h"
#include "nereid/status.h"

namespace nereid::gpu {

struct GpuExecutorOptions {
  int32_t device = 0;
  int32_t max_num_sequences = 512;
  int32_t max_num_tokens = 8192;
  int32_t max_positions = 0;           // 0: the model's own limit
  int64_t max_cache_tokens = 0;        // 0: as the fraction says
  double cache_memory_fraction = 0.9;  // of what is free once the weights are there
  CacheFormat cache_format = CacheFormat::kBf16;
  bool uses_graphs = true;  // for decode steps
  // Of a size, once its algorithms are chosen, until it is recorded: a recording takes some 25 ms,
  // and saves 0.1 to 0.4 ms a step. Those of one launch are recorded at once.
  int32_t steps_before_recording = 16;
  // A sequence gets the same numbers alone and beside others, at the price of slower products.
  bool is_invariant = false;
  // Decode steps of few sequences in one launch, for models that it is there for.
  bool fuses_decode = true;
  std::optional<DummyWeights> dummy;  // weights are made up
  // Every so many steps, `on_profile` gets a table of what their operators took (step_profile.h);
  // steps are then neither recorded nor overlapped. 0: never. [engine thread]
  int32_t profile_steps = 0;
  std::function<void(const std::string&)> on_profile;
  // What the log should say of a model that goes on, but slower; may be empty. [a rank's thread]
  std::function<void(const std::string&)> on_warning;
  // One of several that share a model (sharded_executor.h), borrowed; null: it is alone. Rank 0
  // draws the tokens.
  PeerGroup* group = nullptr;
  int32_t rank = 0;
};

class GpuExecutor : public llm::Executor {
 public:
  // UNSUPPORTED names what of the model is not there; UNAVAILABLE has the arithmetic when memory
  // does not suffice.
  static Result<std::unique_ptr<GpuExecutor>> Create(llm::DecoderModel model,
                                                     const GpuExecutorOptions& options);
  ~GpuExecutor() override;

  const llm::ExecutorLimits& limits() const override { return limits_; }
  llm::ExecutorFeatures features() const override {
    return {.block_copies = true,
            .candidates = true,
            .logits = true,
            .prompt_log_probs = true,
            .overlap = timer_ == nullptr,
            .batch_invariant = options_.is_invariant};
  }
  llm::ExecutorMemory memory() const override;
  llm::ExecutorCounts counts() const override {
    return {graphs_.num_launches(), graphs_.num_refused()};
  }
  Status Submit(const llm::Batch& batch) override;
  Result<llm::StepResult> Collect() override;

  const llm::DecoderSpec& spec() const { return model_.spec; }
  // Waits for all that was submitted.
  void Drain();
  // Logits of the newest step, row by row, after sampling rules: those that tokens are drawn from,
  // or, where none is, the others.
  Result<std::vector<float>> ReadLogits();
  // A fault for tests: the given step reports a launch that failed.
  void FailAt(int64_t step) { fail_at_ = step; }
  // Another one: steps can not be recorded from now on.
  void FailRecordings() { graphs_.FailRecordings(); }
  // Another one: the cache holds such bytes wherever no token was written yet. Between steps.
  Status FillCache(uint8_t byte) { return decoder_->FillCache(byte); }
  int64_t num_graph_steps() const { return graphs_.num_launches(); }
  // Whether small decode steps are one launch: the model and the device allow it.
  bool fuses_decode() const { return decoder_->fuses_decode(); }
  const std::string& decode_refusal() const { return decoder_->decode_refusal(); }
  // Seconds in which the device had nothing to do between steps that followed each other.
  double idle_seconds() const { return idle_seconds_; }
  int64_t num_steps() const { return num_steps_; }

 private:
  GpuExecutor(llm::DecoderModel model, const Sharding& sharding, const GpuExecutorOptions& options,
              int32_t num_processors);
  Status Initialize();
  Status SizeCache();
  Status Upload(int32_t half);
  // The step from the plan on, without rows of logits that no token is drawn from: decoder, then
  // the likeliest tokens.
  Status Run(const StepShape& shape, bool may_time);
  Status RunHead(const StepShape& shape, bool may_time);
  Status CopyRows(int32_t first, int32_t count);
  // The likeliest token of each row of logits() and its log sum; those are rows [first, + count).
  void FindLikeliest(const StepShape& shape, int32_t first, int32_t count);
  // What sequences of the step want of these rows before any rule changes them. Waits for logits.
  Status TakeRows(const llm::Batch& batch, const StepShape& shape, int32_t first, int32_t count,
                  int32_t half);
  // The rows that no token is drawn from, as many at a time as there is room for.
  Status TakeOtherRows(const llm::Batch& batch, const StepShape& shape, int32_t half);
  Status FindCandidates(const llm::Batch& batch, int32_t half);
  // Rows that want more than their likeliest token.
  Status Draw(const StepShape& shape);
  // A row whose rules change more logits than the plan has room for; waits for the step.
  Status DrawOnHost(const llm::BatchSequence& sequence, int32_t row, int32_t half);
  SampleTarget Target(const StepShape& shape) const;

  const Sharding sharding_;
  llm::DecoderModel model_;  // its spec is this GPU's share
  const GpuExecutorOptions options_;
  llm::ExecutorLimits limits_;
  int32_t max_num_logits_ = 0;
  StepPlanner planner_;
  DrawPlanner draws_;
  Stream stream_;
  GpuWeights weights_;
  std::unique_ptr<OperatorTimer> timer_;  // null: steps are not timed
  std::optional<Decoder> decoder_;
  DeviceMemory words_;  // the step's plan: its words, DrawItems, LogitEdits
  DeviceMemory argmax_parts_, argmax_tickets_, log_sums_;
  PinnedMemory sampled_;    // [2, max_num_logits] ids, then as many log probabilities
  PinnedMemory log_probs_;  // [2, rows of a step]: of tokens of prompts
  StepGraphs graphs_;       // by padded batch
  int64_t num_steps_ = 0;
  int64_t fail_at_ = -1;
  double idle_seconds_ = 0.0;
  std::optional<std::chrono::steady_clock::time_point> collected_;
  int32_t num_processors_ = 0;

  // A step from Submit to Collect.
  struct Flight {
    Event done;
    PinnedMemory words;
    std::vector<int32_t> rows;  // of each sequence's last logits; -1: does not sample
    // Of a step in which a sequence wants more than a token; what it wants of the logits.
    llm::StepResult more;
    std::vector<std::pair<int32_t, int32_t>> log_prob_rows;  // of a sequence, into log_probs_
  };
  std::array<Flight, 2> flights_;
  int64_t num_submitted_ = 0, num_collected_ = 0;  // halves are used in turns
  int32_t num_logits_ = 0;                         // of the newest step
  std::vector<float> host_logits_;
  llm::Sampler sampler_;
};

}  // namespace nereid::gpu
