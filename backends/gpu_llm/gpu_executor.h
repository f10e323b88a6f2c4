// The executor of one GPU: plans a step on the host, uploads the plan in one copy, runs the decoder
// (decode steps as CUDA graphs) and samples. A second step may be submitted while one runs: one
// stream orders all work, and buffers shared by host and device exist twice. [engine thread]
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
#include "backends/gpu_llm/companion_memory.h"
#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/cuda/stream.h"
#include "backends/gpu_llm/draw_plan.h"
#include "backends/gpu_llm/gpu_block_storage.h"
#include "backends/gpu_llm/kernels/forms.h"
#include "backends/gpu_llm/kernels/sampling/sample.h"
#include "backends/gpu_llm/model/decoder.h"
#include "backends/gpu_llm/model/device_adapters.h"
#include "backends/gpu_llm/model/gpu_weights.h"
#include "backends/gpu_llm/model/sharding.h"
#include "backends/gpu_llm/operator_timer.h"
#include "backends/gpu_llm/step_drafts.h"
#include "backends/gpu_llm/step_graphs.h"
#include "backends/gpu_llm/step_plan.h"
#include "backends/llm_core/checkpoint/checkpoint.h"
#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/kv_tiers/kv_tier_options.h"
#include "backends/llm_core/model/architecture.h"
#include "backends/llm_core/sampling/sampler.h"
#include "nereid/status.h"

namespace nereid::gpu {

struct GpuExecutorOptions {
  int32_t device = 0;
  int32_t max_num_sequences = 512;
  int32_t max_num_tokens = 8192;
  int32_t max_positions = 0;                 // 0: the model's own limit
  int64_t max_cache_tokens = 0;              // 0: determined by cache_memory_fraction
  double cache_memory_fraction = 0.9;        // of the memory that is free after loading the weights
  bool is_cache_fraction_requested = false;  // by the configuration; see CountCacheBlocks
  bool caches_prefixes = false;              // the engine has a prefix cache
  int64_t max_cache_blocks = 0;              // never more than so many KV blocks; 0: no limit
  // Left free for the model or head that drafts for this one, and is loaded afterwards.
  CompanionMemory companion_memory;
  CacheFormat cache_format = CacheFormat::kBf16;
  // Memory for LoRA adapters: a part of what is free after loading the weights, before the KV cache
  // takes its part. 0: no adapters.
  double adapter_memory_fraction = 0.0;
  int64_t adapter_memory_bytes = 0;  // in place of the fraction, if it is not 0
  int32_t max_adapter_rank = 64;
  bool uses_graphs = true;  // for decode steps
  // Steps of a size, after its algorithms are chosen, until it is recorded as a graph. A recording
  // takes about 25 ms and saves 0.1 to 0.4 ms a step. Fused decode steps are recorded at once.
  int32_t steps_before_recording = 16;
  // Batch invariance: a sequence's numbers do not depend on the batch. Matrix products are slower.
  bool is_batch_invariant = false;
  // Runs decode steps of few sequences in one launch, for models that support it.
  bool fuses_decode = true;
  std::optional<DummyWeights> dummy;  // random weights instead of a checkpoint
  // Of the layers, whose weights stay in device memory. Each step copies the others' from host
  // memory. Dense models.
  double resident_weights_fraction = 1.0;
  // After every `profile_steps` steps, `on_profile` gets a table of operator times
  // (step_profile.h). Steps are then neither recorded nor overlapped. 0: off. [engine thread]
  int32_t profile_steps = 0;
  std::function<void(const std::string&)> on_profile;
  // Gets warnings about a model that runs, but slower. May be empty. [a rank's thread]
  std::function<void(const std::string&)> on_warning;
  // The group of GPUs that share the model (sharded_executor.h), borrowed; null: a single GPU. Rank
  // 0 samples the tokens.
  PeerGroup* group = nullptr;
  int32_t rank = 0;
  // Memory and a file that keep evicted blocks of the prefix cache. With a file, `checkpoint` is
  // that of the model, borrowed during Create: the file belongs to it. With several GPUs: of this
  // one's parts of the blocks.
  llm::KvTierOptions tiers = {};
  const llm::Checkpoint* checkpoint = nullptr;
};

class GpuExecutor : public llm::Executor {
 public:
  // UNSUPPORTED names the feature of the model that is not supported. UNAVAILABLE lists the memory
  // that is needed and available.
  static Result<std::unique_ptr<GpuExecutor>> Create(llm::DecoderModel model,
                                                     const GpuExecutorOptions& options);
  ~GpuExecutor() override;

  const llm::ExecutorLimits& limits() const override { return limits_; }
  llm::ExecutorFeatures features() const override {
    return {.block_copies = true,
            .candidates = true,
            .logits = true,
            .prompt_log_probs = true,
            .top_tokens = true,
            .token_masks = true,
            .adapters = adapters_ != nullptr,
            .draft_tokens = true,
            .draft_masks = true,
            .draft_trees = options_.group == nullptr,
            .prompt_embeddings = true,
            .draft_logits = true,
            .hidden_states = true,
            .overlap = timer_ == nullptr,
            .batch_invariant = options_.is_batch_invariant};
  }
  llm::ExecutorMemory memory() const override;
  llm::BlockStorage* block_storage() override { return storage_.get(); }
  std::span<const llm::StepCostPoint> typical_step_costs() const override;
  llm::ExecutorCounts counts() const override {
    return {num_graph_steps(), graphs_.num_refused() + chain_graphs_.num_refused() +
                                   tree_graphs_.num_refused() + hidden_state_graphs_.num_refused() +
                                   adapter_graphs_.num_refused() +
                                   adapter_chain_graphs_.num_refused()};
  }
  Result<int64_t> AdapterBytes(const llm::LoraAdapter& adapter) const override {
    return adapters_ == nullptr ? Result<int64_t>(0) : adapters_->BytesOf(adapter);
  }
  bool PrepareAdapter(const std::shared_ptr<const llm::LoraAdapter>& adapter) override;
  Status CaptureHiddenStates(std::span<const int32_t> layers, llm::HiddenStatePlace place) override;
  Status Submit(const llm::StepBatch& batch) override;
  Result<llm::StepResult> Collect() override;

  const llm::DecoderSpec& spec() const { return model_.spec; }
  int32_t device() const { return options_.device; }
  KernelForm form() const { return form_; }
  // [vocab_size, hidden_size] on the device, for a head that has none of its own.
  const __nv_bfloat16* token_embedding() const { return weights_.token_embedding; }
  // What runs on this stream runs between the steps that are submitted before and after it.
  cudaStream_t stream() const { return stream_.get(); }
  const Decoder& decoder() const { return *decoder_; }
  const GpuNorm& final_norm() const { return weights_.final_norm; }
  // Waits until all submitted work has completed.
  void Drain();
  // Logits of the newest step, row by row, after sampling rules: the sampled rows, or the other
  // rows if none is sampled.
  Result<std::vector<float>> ReadLogits();
  // For tests: makes the given step report a failed launch.
  void FailAt(int64_t step) { fail_at_ = step; }
  // For tests: makes all later recordings fail.
  void FailRecordings() {
    graphs_.FailRecordings();
    chain_graphs_.FailRecordings();
    tree_graphs_.FailRecordings();
    hidden_state_graphs_.FailRecordings();
    adapter_graphs_.FailRecordings();
    adapter_chain_graphs_.FailRecordings();
  }
  // For tests: sets every byte of the cache. Call it between steps.
  Status FillCache(uint8_t byte) { return decoder_->FillCache(byte); }
  int64_t num_graph_steps() const {
    return graphs_.num_launches() + chain_graphs_.num_launches() + tree_graphs_.num_launches() +
           hidden_state_graphs_.num_launches() + adapter_graphs_.num_launches() +
           adapter_chain_graphs_.num_launches();
  }
  // Bytes of weights that each step copies from host memory.
  int64_t streamed_bytes() const {
    return weights_.stream == nullptr ? 0 : weights_.stream->step_bytes();
  }
  // LoRA adapters that were copied to the device.
  int64_t num_copied_adapters() const { return adapters_ == nullptr ? 0 : adapters_->num_copied(); }
  // Whether small decode steps run in one launch.
  bool fuses_decode() const { return decoder_->fuses_decode(); }
  const std::string& decode_refusal() const { return decoder_->decode_refusal(); }
  // The form of the kernels, and the code that the driver loaded.
  std::string kernels() const { return DescribeLoadedKernels(form_); }
  // Seconds during which the device was idle between consecutive steps.
  double idle_seconds() const { return idle_seconds_; }
  int64_t num_steps() const { return num_steps_; }

 private:
  struct InFlightStep;

  GpuExecutor(llm::DecoderModel model, const Sharding& sharding, const GpuExecutorOptions& options,
              int32_t num_processors);
  Status Initialize();
  Status MakeAdapters(int32_t max_num_rows);
  Status SizeCache();
  Status OpenTiers();
  // Puts the adapters of the step on the device. Returns their slots.
  Result<std::span<const int32_t>> LoadAdapters(const llm::StepBatch& batch);
  Status Upload(int32_t buffer_index);
  // Makes the embeddings of the step's virtual tokens readable for the device.
  Status WritePromptRows(int32_t buffer_index);
  // The step after its upload, without the rows of logits that are not sampled: decoder, LM head
  // and most likely tokens.
  Status Run(const StepShape& shape, bool may_time);
  Status RunHead(const StepShape& shape, bool may_time);
  Status CopyRows(int32_t first, int32_t count);
  // Computes the most likely token and the log sum of each row of logits(): rows [first, + count).
  void FindMostLikely(const StepShape& shape, int32_t first, int32_t count);
  // Copies the logits and log probabilities that sequences request of these rows, before rules
  // change them. Waits if logits are requested.
  Status ExtractRows(const llm::StepBatch& batch, const StepShape& shape, int32_t first,
                     int32_t count, int32_t buffer_index);
  // Computes the rows that are not sampled, in chunks of the logits buffer.
  Status ComputeUnsampledRows(const llm::StepBatch& batch, const StepShape& shape,
                              int32_t buffer_index);
  Status FindCandidates(const llm::StepBatch& batch, int32_t buffer_index);
  // Finds the most likely tokens of the rows whose sequences request them, before rules change the
  // logits.
  Status MakeTopTokens();
  Status FindTopTokensOfRows(const llm::StepBatch& batch, int32_t buffer_index);
  // Allocates them.
  Status MakeMasks();
  // Waits for the masks of the step's grammars and copies them to the device.
  Status UploadMasks(const llm::StepBatch& batch, int32_t buffer_index);
  // Samples the rows that need more than the most likely token.
  Status Draw(const StepShape& shape);
  // Samples the rows on the host whose rules change too many logits for the plan, and verifies
  // drafts with logits. Waits for the step, and copies one row of logits for each of them; rows
  // behind a rejected draft are left out.
  Status DrawRowsOnHost(const llm::StepBatch& batch, int32_t buffer_index);
  // Returns the token of one such row.
  Result<int32_t> DrawOnHost(const llm::StepBatch& batch, const DrawPlanner::HostDraw& draw,
                             int32_t buffer_index);
  // Moves the keys and values of the step's accepted drafts of trees to the places behind the
  // newest token. The next step is submitted afterwards.
  Status MoveAccepted(const StepDrafts& drafts, int32_t buffer_index);
  // Returns the hidden states that entries request, on the device or by a copy to the host. They
  // are complete with the step.
  Status ReturnHiddenStates(const llm::StepBatch& batch, InFlightStep& in_flight);
  Status CopyHiddenStates(const llm::StepBatch& batch, InFlightStep& in_flight);
  // Moves those of a completed step to its result.
  void TakeHiddenStates(const InFlightStep& in_flight, llm::StepResult& result) const;
  // Settled steps of the shape's size until it is recorded. Draft tokens make many sizes, each of
  // which is rare.
  int32_t StepsBeforeRecording(const StepShape& shape) const;
  // Whether one launch computes a decode step of this shape.
  bool IsFused(const StepShape& shape) const;
  // The graphs of decode steps of such a shape. The plan of attention with draft tokens has another
  // kernel, except in fused steps.
  StepGraphs& GraphsOf(const StepShape& shape);
  SampleTarget Target(const StepShape& shape) const;

  const Sharding sharding_;
  llm::DecoderModel model_;  // its spec is this GPU's shard
  const GpuExecutorOptions options_;
  llm::ExecutorLimits limits_;
  int32_t max_num_logits_ = 0;
  StepPlanner planner_;
  DrawPlanner draw_planner_;
  Stream stream_;
  GpuWeights weights_;
  std::unique_ptr<OperatorTimer> timer_;  // null: no profile
  std::optional<Decoder> decoder_;
  DeviceMemory words_;  // the step's plan: its words, DrawItems, LogitEdits
  // [max_num_logits, words of a mask], and twice as much on the host. Of rank 0 only.
  DeviceMemory masks_;
  PinnedMemory host_masks_;
  DeviceMemory argmax_partials_, argmax_tickets_, log_sums_;
  PinnedMemory sampled_;    // [2, max_num_logits] ids, then as many log probabilities
  PinnedMemory log_probs_;  // [2, rows of a step]: of prompt tokens
  // [2, max_num_logits, kMaxTopTokens] ids, then as many log probabilities; on one GPU, the first
  // request that needs it allocates it
  PinnedMemory top_tokens_;
  StepGraphs graphs_, chain_graphs_;  // by padded batch size; without and with draft tokens
  StepGraphs tree_graphs_;            // with draft trees, without adapters
  StepGraphs hidden_state_graphs_;    // of fused steps whose hidden states are kept
  llm::HiddenStatePlace hidden_state_place_ = llm::HiddenStatePlace::kHost;
  std::unique_ptr<DeviceAdapters> adapters_;  // null: none
  // Of steps with adapters: one graph for each size, whatever the adapters.
  StepGraphs adapter_graphs_, adapter_chain_graphs_;
  uint32_t adapter_groups_ = 0;  // DeviceAdapters::groups() of adapter_graphs_
  int64_t num_steps_ = 0;
  int64_t fail_at_ = -1;
  double idle_seconds_ = 0.0;
  std::optional<std::chrono::steady_clock::time_point> last_collect_;
  int32_t num_processors_ = 0;
  KernelForm form_ = KernelForm::kNative;

  // A step between Submit() and Collect().
  struct InFlightStep {
    Event done;
    PinnedMemory words;
    PinnedMemory prompt_rows;   // bf16, [rows, hidden size]; grows up to the rows of a step
    std::vector<int32_t> rows;  // row of each sequence's first sampled position; -1: not sampled
    StepDrafts drafts;
    // Candidates and logits that sequences request besides a token.
    llm::StepResult result;
    std::vector<std::pair<int32_t, int32_t>> log_prob_rows;  // of a sequence: index into log_probs_
    // Hidden states of the entries that request them, one after the other; grows with the largest
    // step. An entry has so many of its rows.
    PinnedMemory hidden;
    std::vector<std::pair<int32_t, int32_t>> hidden_rows;
    // Rows whose most likely tokens are in top_tokens_, in its order.
    struct TopTokens {
      int32_t sequence, index, count;  // index: of the sequence's sampled positions
    };
    std::vector<TopTokens> top_tokens;
  };
  std::array<InFlightStep, 2> in_flight_;
  int64_t num_submitted_ = 0, num_collected_ = 0;  // the two buffers alternate
  int32_t num_logits_ = 0;                         // of the newest step
  std::vector<float> host_logits_;
  llm::Sampler sampler_;
  std::unique_ptr<GpuBlockStorage> storage_;  // of evicted blocks; null: none
  // [2]: moves of accepted drafts, [max_num_logits_], and their ranges, [max_num_logits_]; the
  // first tree allocates it
  PinnedMemory moves_;
};

}  // namespace nereid::gpu
