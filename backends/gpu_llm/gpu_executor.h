// The executor of one GPU conducts a step: the planner plans it on the host (step_plan.h), its plan
// is uploaded in one copy (step_upload.h), the decoder runs, decode steps as graphs
// (decode_graphs.h), tokens are sampled (step_sampler.h), and what else sequences request is taken
// (logit_outputs.h, hidden_state_outputs.h). A second step may be submitted while one runs: one
// stream orders all work, and buffers shared by host and device exist twice. [engine thread]
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/cuda/stream.h"
#include "backends/gpu_llm/decode_graphs.h"
#include "backends/gpu_llm/gpu_block_storage.h"
#include "backends/gpu_llm/gpu_executor_options.h"
#include "backends/gpu_llm/hidden_state_outputs.h"
#include "backends/gpu_llm/host_logits.h"
#include "backends/gpu_llm/kernels/forms.h"
#include "backends/gpu_llm/logit_outputs.h"
#include "backends/gpu_llm/model/decoder.h"
#include "backends/gpu_llm/model/device_adapters.h"
#include "backends/gpu_llm/model/gpu_weights.h"
#include "backends/gpu_llm/model/sharding.h"
#include "backends/gpu_llm/operator_timer.h"
#include "backends/gpu_llm/step_drafts.h"
#include "backends/gpu_llm/step_plan.h"
#include "backends/gpu_llm/step_sampler.h"
#include "backends/gpu_llm/step_upload.h"
#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/model/architecture.h"
#include "nereid/status.h"

namespace nereid::gpu {

class GpuExecutor : public llm::Executor {
 public:
  // UNSUPPORTED names the feature of the model that is not supported. UNAVAILABLE lists the memory
  // that is needed and available.
  static Result<std::unique_ptr<GpuExecutor>> Create(llm::DecoderModel model,
                                                     const GpuExecutorOptions& options);
  ~GpuExecutor() override;

  // The most sequences for which an EAGLE-3 head proposes drafts: those of one launch.
  static constexpr int32_t kMaxHiddenStateSequences = 256;

  const llm::ExecutorLimits& limits() const override { return limits_; }
  llm::ExecutorFeatures features() const override;
  llm::ExecutorMemory memory() const override;
  llm::BlockStorage* block_storage() override { return storage_.get(); }
  llm::TypicalCosts typical_step_costs() const override;
  // TypicalCosts::context_token_seconds, from what a step of few rows with short contexts takes.
  double ContextTokenSeconds(double step_ms) const;
  llm::ExecutorCounts counts() const override { return {num_graph_steps(), graphs_.num_refused()}; }
  Result<int64_t> AdapterBytes(const llm::LoraAdapter& adapter) const override {
    return adapters_ == nullptr ? Result<int64_t>(0) : adapters_->BytesOf(adapter);
  }
  bool PrepareAdapter(const std::shared_ptr<const llm::LoraAdapter>& adapter) override;
  Result<std::vector<llm::FailedAdapter>> LoadAdapters(
      std::span<const std::shared_ptr<const llm::LoraAdapter>> adapters) override;
  Status CaptureHiddenStates(std::span<const int32_t> layers, llm::HiddenStatePlace place) override;
  Status PrepareSteps() override;
  Status PrepareDraftSteps(const llm::DraftStepForm& form) override;
  Status Submit(const llm::StepBatch& batch) override;
  Result<llm::StepResult> Collect() override;

  // As LoadAdapters(), but those that failed keep their places until ForgetAdapters(): with several
  // GPUs, all forget the same ones in the same order, so that all place adapters alike.
  Result<std::vector<llm::FailedAdapter>> CopyAdapters(
      std::span<const std::shared_ptr<const llm::LoraAdapter>> adapters);
  void ForgetAdapters(std::span<const llm::FailedAdapter> failed);
  // Of a GPU that samples nothing, after Collect(): moves the keys and values of the drafts that
  // the first GPU has accepted.
  Status FollowAccepted(const llm::StepResult& result);
  // Whether a size is recorded at its first step whose algorithms are chosen.
  void RecordAtOnce(bool is_on) { records_at_once_ = is_on; }
  const llm::DecoderSpec& spec() const { return model_.spec; }
  int32_t device() const { return options_.device; }
  KernelForm form() const { return form_; }
  // The number of GPUs among which the model is divided.
  int32_t num_gpus() const { return sharding_.count(); }
  // [vocab_size, hidden_size] on the device, for a head that has none of its own.
  const __nv_bfloat16* token_embedding() const { return weights_.token_embedding; }
  // What runs on this stream runs between the steps that are submitted before and after it.
  cudaStream_t stream() const { return stream_.get(); }
  const Decoder& decoder() const { return *decoder_; }
  // The final norm and the LM head, for heads that continue the model's hidden states.
  const GpuWeights& weights() const { return weights_; }
  // Waits until all submitted work has completed.
  void Drain();
  // Logits of the newest step, which was collected, row by row, after sampling rules: the sampled
  // rows, or the other rows if none is sampled.
  Result<std::vector<float>> ReadLogits();
  // For tests: makes the given step report a failed launch.
  void FailAt(int64_t step) { fail_at_ = step; }
  // For tests: see DeviceAdapters. Requires memory for adapters.
  void FailAdapterCopiesOf(std::string name) { adapters_->FailCopiesOf(std::move(name)); }
  // For tests: makes all later recordings fail.
  void FailRecordings() { graphs_.FailRecordings(); }
  // For tests: sets every byte of the cache. Call it between steps.
  Status FillCache(uint8_t byte) { return decoder_->FillCache(byte); }
  int64_t num_graph_steps() const { return graphs_.num_launches(); }
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
  // The batch of the largest step that the limits allow.
  StepShape LargestShape(const DecoderLimits& limits) const;
  // What uploads the steps' plans, samples, and keeps results.
  Status MakeBuffers(const DecoderLimits& limits);
  Status MakeAdapters(int32_t max_num_rows);
  Status SizeCache();
  Status OpenTiers();
  // The slots of the step's adapters, which are copied if LoadAdapters() was not called before.
  Result<std::span<const int32_t>> AdapterSlotsOf(const llm::StepBatch& batch);
  // Launches a planned and uploaded step: as a graph, or kernel by kernel, and then records it if
  // it is time. Returns StepResult::is_typical.
  Result<bool> Launch(const llm::StepBatch& batch, int32_t buffer_index);
  // The step without the rows of logits that are not sampled: decoder, LM head and most likely
  // tokens.
  Status Run(const StepShape& shape, bool may_time);
  Status RunHead(const StepShape& shape, bool may_time);
  // Computes the rows that are not sampled, in chunks of the logits buffer.
  Status ComputeUnsampledRows(const llm::StepBatch& batch, const StepShape& shape,
                              int32_t buffer_index);
  // Takes what sequences request of logits [first, first + count), before rules change them.
  Status ExtractLogits(const llm::StepBatch& batch, const StepShape& shape, int32_t first,
                       int32_t count, int32_t buffer_index);
  // The same of the sampled rows, then draws them.
  Status Sample(const llm::StepBatch& batch, const StepShape& shape, int32_t buffer_index);
  Status AllocateMoves();
  // Moves the keys and values of the step's accepted drafts of trees to the places behind the
  // newest token. The next step is submitted afterwards.
  Status MoveAccepted(const StepDrafts& drafts, int32_t buffer_index);
  // Settled steps of the shape's size until it is recorded. Draft tokens make many sizes, each of
  // which is rare.
  int32_t StepsBeforeRecording(const StepShape& shape) const;
  // Whether one launch computes a decode step of this shape.
  bool IsFused(const StepShape& shape) const;
  StepSampler::Launch SamplerLaunch(const StepShape& shape) const {
    return {shape, upload_, timer_.get(), stream_.get()};
  }

  const Sharding sharding_;
  llm::DecoderModel model_;  // its spec is this GPU's shard
  const GpuExecutorOptions options_;
  llm::ExecutorLimits limits_;
  int32_t max_num_logits_ = 0;
  StepPlanner planner_;
  Stream stream_;
  GpuWeights weights_;
  std::unique_ptr<OperatorTimer> timer_;  // null: no profile
  std::optional<Decoder> decoder_;
  StepUpload upload_;
  std::optional<StepSampler> sampler_;
  std::optional<LogitOutputs> logit_outputs_;
  std::optional<HostLogits> host_logits_;
  HiddenStateOutputs hidden_states_;
  DecodeGraphs graphs_;
  bool records_at_once_ = false;
  std::vector<llm::StepCostPoint> measured_costs_;  // of PrepareDraftSteps(); empty: none
  std::unique_ptr<DeviceAdapters> adapters_;        // null: none
  uint32_t adapter_groups_ = 0;  // DeviceAdapters::groups() of the recorded steps
  int64_t num_steps_ = 0;
  int64_t fail_at_ = -1;
  double idle_seconds_ = 0.0;
  std::optional<std::chrono::steady_clock::time_point> last_collect_;
  int32_t num_processors_ = 0;
  KernelForm form_ = KernelForm::kNative;

  // A step between Submit() and Collect().
  struct InFlightStep {
    Event done;
    std::vector<int32_t> rows;  // row of each sequence's first sampled position; -1: not sampled
    StepDrafts drafts;
    // Candidates and logits that sequences request besides a token.
    llm::StepResult result;
  };
  std::array<InFlightStep, 2> in_flight_;
  int64_t num_submitted_ = 0, num_collected_ = 0;  // the two buffers alternate
  int32_t num_logits_ = 0;                         // of the newest step
  std::unique_ptr<GpuBlockStorage> storage_;       // of evicted blocks; null: none
  // [2]: moves of accepted drafts, [max_num_logits_], and their ranges, [max_num_logits_]; of one
  // GPU, the first tree allocates it
  PinnedMemory moves_;
};

}  // namespace nereid::gpu
