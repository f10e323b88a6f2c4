// GpuExecutor: sets up device, weights, decoder and cache, and runs steps. [engine thread]
#include "backends/gpu_llm/gpu_executor.h"

#include <algorithm>

#include "backends/gpu_llm/cache_budget.h"
#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/kernel_registry.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/comm/all_reduce.h"
#include "backends/gpu_llm/kernels/forms.h"
#include "backends/gpu_llm/step_warm_up.h"

namespace nereid::gpu {
namespace {

// A longer gap between steps counts as waiting for requests, not as idle time.
constexpr double kMaxIdleGapSeconds = 5e-3;

// Launching a step of more rows takes the host no longer than the step takes the device.
constexpr int32_t kFewRows = 64;

// Makes the device current and returns the form of the kernels that it runs.
Result<KernelForm> SelectDevice(int32_t device) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (int driver = 0;
      error == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess) {
    NEREID_RETURN_IF_ERROR(CheckDriverVersion(driver, CUDART_VERSION));
  }
  if (error != cudaSuccess || count == 0) {
    return UnavailableError("no GPU: ",
                            error == cudaSuccess ? "none is visible" : cudaGetErrorString(error));
  }
  if (device < 0 || device >= count) {
    return InvalidArgError("gpu_device_ids names GPU ", device, ", expected 0 to ", count - 1);
  }
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(device));
  return SelectKernelForm(device);
}

// The most rows of a decode step. Draft tokens use the rows that sequences leave, so that they take
// no memory.
int32_t MaxDecodeRows(int32_t max_num_sequences, int32_t max_num_tokens) {
  return StepPlanner::PaddedBatch(std::max(max_num_sequences, std::min(max_num_tokens, 128)));
}

StepPlannerOptions PlannerOptions(const llm::DecoderSpec& spec, int32_t num_processors,
                                  bool is_batch_invariant) {
  StepPlannerOptions options;
  options.num_heads = spec.num_heads;
  options.num_kv_heads = spec.num_kv_heads;
  options.num_processors = num_processors;
  options.short_positions_offset = RopeTables::ShortPositionsOffset(spec, spec.max_positions);
  options.is_batch_invariant = is_batch_invariant;
  options.scales_input_embeddings = spec.scales_input_embeddings;
  return options;
}

// Limits the model to sequences of at most `max_positions` tokens.
llm::DecoderModel WithPositionLimit(llm::DecoderModel model, int32_t max_positions) {
  llm::LimitPositions(model.spec, max_positions);
  return model;
}

}  // namespace

Result<std::unique_ptr<GpuExecutor>> GpuExecutor::Create(llm::DecoderModel model,
                                                         const GpuExecutorOptions& options) {
  const int32_t num_gpus = options.group == nullptr ? 1 : options.group->count();
  NEREID_ASSIGN_OR_RETURN(const Sharding sharding,
                          Sharding::Of(model.spec, options.rank, num_gpus));
  model.spec = sharding.Local(model.spec);
  NEREID_RETURN_IF_ERROR(CheckGpuSupport(model));
  NEREID_RETURN_IF_ERROR(CheckOptions(options, model.spec));
  NEREID_ASSIGN_OR_RETURN(const KernelForm form, SelectDevice(options.device));
  if (form == KernelForm::kPortable) NEREID_RETURN_IF_ERROR(CheckPortableSupport(num_gpus));
  NEREID_ASSIGN_OR_RETURN(const int32_t num_processors,
                          DeviceAttribute(cudaDevAttrMultiProcessorCount, options.device));
  std::unique_ptr<GpuExecutor> executor(
      new GpuExecutor(std::move(model), sharding, options, num_processors));
  executor->form_ = form;
  NEREID_RETURN_IF_ERROR(executor->Initialize());
  return executor;
}

GpuExecutor::GpuExecutor(llm::DecoderModel model, const Sharding& sharding,
                         const GpuExecutorOptions& options, int32_t num_processors)
    : sharding_(sharding),
      model_(WithPositionLimit(std::move(model), options.max_positions)),
      options_(options),
      planner_(PlannerOptions(model_.spec, num_processors, options.is_batch_invariant)),
      graphs_(options.group, options.on_warning),
      num_processors_(num_processors) {}

GpuExecutor::~GpuExecutor() {
  Drain();
}

void GpuExecutor::Drain() {
  (void)cudaSetDevice(options_.device);
  if (stream_) (void)cudaStreamSynchronize(stream_.get());
}

Status GpuExecutor::Initialize() {
  const llm::DecoderSpec& spec = model_.spec;
  limits_.vocab_size = spec.vocab_size;
  limits_.max_positions = spec.max_positions;
  limits_.attention_window = spec.attention_window();
  limits_.num_sink_tokens = spec.num_sink_tokens;
  for (const llm::RopeSpec& rope : spec.ropes) {
    if (!rope.short_inv_freq.empty()) limits_.long_rope_positions = rope.short_positions;
  }
  limits_.max_num_sequences = std::max(1, options_.max_num_sequences);
  limits_.max_num_tokens = std::max(options_.max_num_tokens, limits_.max_num_sequences);
  limits_.block_size = kBlockTokens;
  // GPUs of a group get an urgent stream: a GPU must not wait behind a launch of another model that
  // itself waits for the whole GPU.
  NEREID_ASSIGN_OR_RETURN(stream_, MakeStream(options_.group != nullptr));
  NEREID_ASSIGN_OR_RETURN(weights_, LoadGpuWeights(model_, sharding_, options_.dummy,
                                                   options_.resident_weights_fraction));
  if (form_ == KernelForm::kPortable) weights_.KeepInputsInBf16();
  model_.weights.clear();  // the checkpoint is not needed any more
  DecoderLimits limits;
  const int32_t padded = MaxDecodeRows(limits_.max_num_sequences, limits_.max_num_tokens);
  limits_.max_num_sampled = max_num_logits_ = limits.max_num_logits = padded;
  limits.max_num_tokens = std::max(limits_.max_num_tokens, padded);
  limits.max_positions = limits_.max_positions;
  limits.max_decode_items = planner_.MaxDecodeItems(padded);
  limits.item_tokens = planner_.item_tokens();
  limits.partial_bytes = planner_.PartialBytes(limits.max_decode_items, spec.head_dim);
  limits.max_num_sequences = padded;
  limits.num_processors = num_processors_;
  limits.cache_format = options_.cache_format;
  limits.is_batch_invariant = options_.is_batch_invariant;
  limits.fuses_decode = options_.fuses_decode && options_.profile_steps == 0;
  NEREID_ASSIGN_OR_RETURN(Decoder decoder,
                          Decoder::Create(spec, weights_, limits, {options_.group, sharding_}));
  decoder_.emplace(std::move(decoder));
  if (options_.profile_steps > 0) {
    NEREID_ASSIGN_OR_RETURN(timer_, OperatorTimer::Create(options_.device, options_.profile_steps,
                                                          options_.on_profile));
    decoder_->SetTimer(timer_.get());
  }
  NEREID_RETURN_IF_ERROR(MakeAdapters(limits.max_num_tokens));
  StepPlannerOptions planned = PlannerOptions(spec, num_processors_, options_.is_batch_invariant);
  planned.max_decode_rows = padded;
  planned.fused = decoder_->fused_steps();
  planned.fused_item_blocks = FusedItemBlocks(spec.head_dim);
  planned.fused_item_units = StepItemUnits(spec.num_heads, spec.num_kv_heads);
  planned.attention_blocks =
      DecodeAttentionBlocks(CurrentForm(), spec.head_dim, options_.cache_format);
  planner_ = StepPlanner(planned);
  NEREID_RETURN_IF_ERROR(MakeBuffers(limits));
  return SizeCache();
}

StepShape GpuExecutor::LargestShape(const DecoderLimits& limits) const {
  StepShape largest;
  largest.num_tokens = limits.max_num_tokens;
  largest.num_logits = limits.max_num_tokens;
  largest.num_decode = limits.max_decode_items;
  largest.has_trees = true;
  largest.has_adapters = adapters_ != nullptr;
  largest.has_prompt_rows = true;
  if (adapters_ != nullptr) {
    largest.num_adapter_tiles =
        limits.max_num_tokens / kAdapterTileRows + limits_.max_num_sequences;
  }
  const int32_t group = model_.spec.num_heads / model_.spec.num_kv_heads;
  largest.num_prefill = limits.max_num_tokens * group / kQueryRows + limits_.max_num_sequences + 1;
  return largest;
}

Status GpuExecutor::MakeBuffers(const DecoderLimits& limits) {
  const int64_t table_words =
      int64_t{limits_.max_num_sequences} * (BlocksFor(limits_.max_positions) + 1);
  NEREID_ASSIGN_OR_RETURN(
      upload_, StepUpload::Create(StepLayout(LargestShape(limits)).block_tables + table_words,
                                  max_num_logits_, kMaxLogitEdits, options_.group));
  for (InFlightStep& in_flight : in_flight_) {
    NEREID_ASSIGN_OR_RETURN(in_flight.done, MakeEvent());
  }
  const StepLogits logits = {decoder_->logits(), decoder_->logits_stride(), model_.spec.vocab_size,
                             decoder_->last_tokens()};
  NEREID_ASSIGN_OR_RETURN(StepSampler sampler,
                          StepSampler::Create(logits, max_num_logits_, options_.rank == 0));
  sampler_.emplace(std::move(sampler));
  NEREID_ASSIGN_OR_RETURN(LogitOutputs outputs,
                          LogitOutputs::Create(logits, max_num_logits_, limits.max_num_tokens));
  logit_outputs_.emplace(std::move(outputs));
  host_logits_.emplace(logits);
  if (options_.group == nullptr) return {};
  // Later, an allocation may wait for all GPUs, one of which waits for this one.
  NEREID_RETURN_IF_ERROR(AllocateMoves());
  return options_.rank == 0 ? logit_outputs_->AllocateTopTokens() : Status();
}

llm::ExecutorFeatures GpuExecutor::features() const {
  return {.block_copies = true,
          .candidates = true,
          .logits = true,
          .prompt_log_probs = true,
          .top_tokens = true,
          .token_masks = true,
          .adapters = adapters_ != nullptr,
          .draft_tokens = true,
          .draft_masks = true,
          .draft_trees = true,
          .prompt_embeddings = true,
          .draft_logits = true,
          .hidden_states = true,
          .max_hidden_state_sequences = kMaxHiddenStateSequences,
          .overlap = timer_ == nullptr,
          .batch_invariant = options_.is_batch_invariant};
}

// An 8B model in bf16 on an H100, in ms (bench/results/speculation_gpu.csv). The kernels of few
// rows read every weight once; from some hundreds of rows on, products take the time.
llm::TypicalCosts GpuExecutor::typical_step_costs() const {
  if (!measured_costs_.empty())
    return {measured_costs_, true, ContextTokenSeconds(measured_costs_.front().cost)};
  static constexpr llm::StepCostPoint kCosts[] = {{1, 5.07f},  {8, 5.57f},   {9, 6.05f},
                                                  {32, 6.37f}, {64, 7.04f},  {128, 7.64f},
                                                  {256, 9.5f}, {384, 12.5f}, {512, 15.5f}};
  return {kCosts};
}

// Attention reads the keys and values of a context as fast as a step of few rows reads the weights,
// or nearly so. Where only a part of the weights is read, nothing is known.
double GpuExecutor::ContextTokenSeconds(double step_ms) const {
  const auto& layers = model_.spec.layers;
  const bool has_experts =
      std::any_of(layers.begin(), layers.end(), [](const auto& layer) { return layer.is_moe; });
  if (has_experts || weights_.stream != nullptr || weights_.memory.size_bytes() == 0) return 0.0;
  const auto windows = std::count_if(layers.begin(), layers.end(),
                                     [](const auto& layer) { return layer.sliding_window > 0; });
  const double part = 1.0 - static_cast<double>(windows) / static_cast<double>(layers.size());
  const double bytes =
      part * static_cast<double>(decoder_->cache_blocks().block_bytes()) / kBlockTokens;
  return 1e-3 * step_ms * bytes / static_cast<double>(weights_.memory.size_bytes());
}

Status GpuExecutor::PrepareSteps() {
  if (timer_ != nullptr) return {};  // such steps would be in the profile
  RecordAtOnce(true);
  const Status status = WarmUpSteps(*this, options_.most_warm_up_time);
  RecordAtOnce(false);
  return status;
}

Status GpuExecutor::PrepareDraftSteps(const llm::DraftStepForm& form) {
  if (timer_ != nullptr) return {};  // such steps have no graphs, and would be in the profile
  RecordAtOnce(true);
  Result<std::vector<llm::StepCostPoint>> costs = WarmUpDraftSteps(*this, form);
  RecordAtOnce(false);
  if (costs.ok()) measured_costs_ = std::move(*costs);
  return costs.status();
}

Status GpuExecutor::Submit(const llm::StepBatch& batch) {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  const auto buffer_index = static_cast<int32_t>(num_submitted_ % 2);
  InFlightStep& in_flight = in_flight_[buffer_index];
  if (storage_ != nullptr) NEREID_RETURN_IF_ERROR(storage_->BeginStep());
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> adapter_slots, AdapterSlotsOf(batch));
  NEREID_RETURN_IF_ERROR(CheckDraftTrees(batch));
  planner_.Plan(batch, buffer_index, adapter_slots);
  sampler_->Plan(batch);
  const StepShape shape = planner_.shape();
  in_flight.rows.clear();
  in_flight.drafts.Take(batch, planner_);
  in_flight.result = {};
  logit_outputs_->Begin(buffer_index);
  hidden_states_.Clear(buffer_index);
  int32_t num_sampled = 0;
  for (const llm::BatchEntry& sequence : batch.entries) {
    in_flight.rows.push_back(sequence.samples ? num_sampled : -1);
    num_sampled += sequence.samples ? 1 + sequence.num_draft_tokens : 0;
  }
  if (num_steps_ == fail_at_) return CudaStatus(cudaErrorLaunchFailure, "an injected fault");
  NEREID_RETURN_IF_ERROR(upload_.Start(planner_.words(), sampler_->items(), sampler_->edits(),
                                       buffer_index, stream_.get()));
  NEREID_ASSIGN_OR_RETURN(const __nv_bfloat16* const prompt_rows,
                          upload_.WritePromptRows(planner_.prompt_rows(), model_.spec.hidden_size,
                                                  buffer_index, stream_.get()));
  if (prompt_rows != nullptr) decoder_->SetPromptRows(prompt_rows);
  if (timer_ != nullptr) timer_->BeginStep(planner_.is_decode(), batch, stream_.get());
  for (const llm::BlockCopy& copy : batch.block_copies)
    NEREID_RETURN_IF_ERROR(decoder_->cache_blocks().Copy(copy.from, copy.to, stream_.get()));
  NEREID_ASSIGN_OR_RETURN(in_flight.result.is_typical, Launch(batch, buffer_index));
  if (shape.returns_hidden_states && options_.rank == 0) {
    NEREID_RETURN_IF_ERROR(hidden_states_.Return(batch, decoder_->captured(), buffer_index,
                                                 stream_.get(), in_flight.result));
  }
  if (shape.num_sampled > 0) num_logits_ = num_sampled;
  if (options_.rank == 0) NEREID_RETURN_IF_ERROR(Sample(batch, shape, buffer_index));
  if (options_.group != nullptr && shape.num_sampled > 0) {
    BroadcastTokens(options_.group->peers(options_.rank), limits_.max_num_sequences, stream_.get());
    NEREID_RETURN_IF_CUDA_ERROR(cudaGetLastError());
  }
  if (timer_ != nullptr) NEREID_RETURN_IF_ERROR(timer_->EndStep(stream_.get()));
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(in_flight.done.get(), stream_.get()));
  ++num_steps_;
  ++num_submitted_;
  if (last_collect_) {
    const std::chrono::duration<double> gap = std::chrono::steady_clock::now() - *last_collect_;
    if (gap.count() < kMaxIdleGapSeconds) idle_seconds_ += gap.count();
    last_collect_.reset();
  }
  return {};
}

Result<bool> GpuExecutor::Launch(const llm::StepBatch& batch, int32_t buffer_index) {
  const StepShape shape = planner_.shape();
  const bool has_graph = planner_.is_decode() && options_.uses_graphs && timer_ == nullptr &&
                         !(shape.has_trees && shape.has_adapters);
  StepGraphs& graphs = graphs_.Of(shape, IsFused(shape));
  bool is_launched = false;
  if (has_graph) {
    NEREID_ASSIGN_OR_RETURN(is_launched, graphs.Launch(StepSize(shape), stream_.get()));
  }
  if (!is_launched) {
    NEREID_RETURN_IF_ERROR(decoder_->Forward(shape, upload_.words(), true, stream_.get()));
    NEREID_RETURN_IF_ERROR(ComputeUnsampledRows(batch, shape, buffer_index));
    NEREID_RETURN_IF_ERROR(RunHead(shape, true));
  }
  const int num_trials = decoder_->TakeNumTrials();
  bool is_recording = false;
  if (has_graph && !is_launched) {
    NEREID_ASSIGN_OR_RETURN(is_recording,
                            graphs.Record(
                                StepSize(shape), num_trials == 0, StepsBeforeRecording(shape),
                                [&] { return Run(shape, false); }, stream_.get()));
  }
  // A step without a graph is typical, too, if its rows take the device longer than their launches
  // take the host. One trial does not matter: a step has one product of the LM head, whose trials
  // take many steps.
  const bool is_plain = is_launched || !has_graph || counts().num_failed_recordings > 0 ||
                        (shape.num_tokens > kFewRows && !is_recording);
  const bool is_typical = is_plain && num_trials <= 1;
  return is_typical;
}

int32_t GpuExecutor::StepsBeforeRecording(const StepShape& shape) const {
  if (IsFused(shape) || records_at_once_) return 1;
  return shape.has_chains ? std::max(1, options_.steps_before_recording / 4)
                          : options_.steps_before_recording;
}

bool GpuExecutor::IsFused(const StepShape& shape) const {
  return gpu::IsFused(shape, decoder_->fused_steps());
}

Status GpuExecutor::Run(const StepShape& shape, bool may_time) {
  NEREID_RETURN_IF_ERROR(decoder_->Forward(shape, upload_.words(), may_time, stream_.get()));
  return RunHead(shape, may_time);
}

Status GpuExecutor::RunHead(const StepShape& shape, bool may_time) {
  if (shape.num_sampled == 0) return {};
  NEREID_RETURN_IF_ERROR(decoder_->ComputeLogits(shape, upload_.words(), 0, shape.num_sampled,
                                                 may_time, stream_.get()));
  if (options_.rank == 0) sampler_->FindMostLikely(SamplerLaunch(shape), 0, shape.num_sampled);
  return CudaStatus(cudaGetLastError(), "sampling");
}

Status GpuExecutor::ComputeUnsampledRows(const llm::StepBatch& batch, const StepShape& shape,
                                         int32_t buffer_index) {
  for (int32_t first = shape.num_sampled; first < shape.num_logits; first += max_num_logits_) {
    const int32_t count = std::min(max_num_logits_, shape.num_logits - first);
    NEREID_RETURN_IF_ERROR(
        decoder_->ComputeLogits(shape, upload_.words(), first, count, true, stream_.get()));
    if (options_.rank > 0) continue;
    sampler_->FindMostLikely(SamplerLaunch(shape), first, count);
    NEREID_RETURN_IF_ERROR(ExtractLogits(batch, shape, first, count, buffer_index));
    num_logits_ = count;
  }
  return CudaStatus(cudaGetLastError(), "rows of logits");
}

Status GpuExecutor::ExtractLogits(const llm::StepBatch& batch, const StepShape& shape,
                                  int32_t first, int32_t count, int32_t buffer_index) {
  return logit_outputs_->Extract(
      batch,
      {planner_.logit_rows().subspan(first, count), first,
       upload_.words() + StepLayout(shape).next_ids, sampler_->log_sums()},
      buffer_index, *host_logits_, stream_.get(), in_flight_[buffer_index].result);
}

Status GpuExecutor::Sample(const llm::StepBatch& batch, const StepShape& shape,
                           int32_t buffer_index) {
  InFlightStep& in_flight = in_flight_[buffer_index];
  bool needs_logits = false, needs_top_tokens = false;
  int32_t num_sampled = 0;
  for (const llm::BatchEntry& sequence : batch.entries) {
    num_sampled += sequence.samples ? 1 + sequence.num_draft_tokens : 0;
    needs_logits |=
        sequence.num_candidates > 0 || sequence.returns_logits || !sequence.next_ids.empty();
    needs_top_tokens |= sequence.num_top_tokens > 0;
  }
  if (needs_logits) {
    NEREID_RETURN_IF_ERROR(ExtractLogits(batch, shape, 0, num_sampled, buffer_index));
    NEREID_RETURN_IF_ERROR(logit_outputs_->FindCandidates(batch, in_flight.rows, *host_logits_,
                                                          stream_.get(), in_flight.result));
  }
  if (needs_top_tokens) {
    NEREID_RETURN_IF_ERROR(logit_outputs_->FindTopTokens(
        batch, in_flight.rows, sampler_->log_sums(), buffer_index, stream_.get()));
  }
  return sampler_->Draw(SamplerLaunch(shape), batch, buffer_index, *host_logits_);
}

Result<llm::StepResult> GpuExecutor::Collect() {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  const auto buffer_index = static_cast<int32_t>(num_collected_ % 2);
  InFlightStep& in_flight = in_flight_[buffer_index];
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(in_flight.done.get()));
  if (options_.group != nullptr) NEREID_RETURN_IF_ERROR(options_.group->status());
  if (timer_ != nullptr) NEREID_RETURN_IF_ERROR(timer_->Collect());
  ++num_collected_;
  if (num_collected_ == num_submitted_) last_collect_ = std::chrono::steady_clock::now();
  llm::StepResult result = std::move(in_flight.result);
  if (options_.rank > 0) return result;
  result.tokens.resize(in_flight.rows.size());
  hidden_states_.Take(decoder_->captured(), buffer_index, in_flight.rows.size(), result);
  for (size_t i = 0; i < in_flight.rows.size(); ++i) {
    if (in_flight.rows[i] < 0) continue;
    const int32_t first = in_flight.rows[i];
    in_flight.drafts.Accept(i, sampler_->ids(buffer_index) + first,
                            sampler_->log_probs(buffer_index) + first, result);
  }
  NEREID_RETURN_IF_ERROR(MoveAccepted(in_flight.drafts, buffer_index));
  logit_outputs_->Take(buffer_index, in_flight.rows.size(), result);
  return result;
}

Status GpuExecutor::FollowAccepted(const llm::StepResult& result) {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  const auto buffer_index = static_cast<int32_t>((num_collected_ - 1) % 2);
  StepDrafts& drafts = in_flight_[buffer_index].drafts;
  drafts.Follow(result);
  return MoveAccepted(drafts, buffer_index);
}

Status GpuExecutor::AllocateMoves() {
  const auto half = static_cast<size_t>(max_num_logits_) * (sizeof(TokenMove) + sizeof(MoveRange));
  NEREID_ASSIGN_OR_RETURN(moves_, PinnedMemory::Allocate(2 * half));
  return {};
}

Status GpuExecutor::MoveAccepted(const StepDrafts& drafts, int32_t buffer_index) {
  const auto moves = drafts.moves();
  const auto ranges = drafts.ranges();
  if (moves.empty()) return {};
  if (moves_.size_bytes() == 0) NEREID_RETURN_IF_ERROR(AllocateMoves());
  const size_t half = moves_.size_bytes() / 2;
  // The moves of the step before the previous one have ended: a step that followed them has.
  auto* const to_moves = reinterpret_cast<TokenMove*>(moves_.as<char>() + buffer_index * half);
  auto* const to_ranges = reinterpret_cast<MoveRange*>(to_moves + max_num_logits_);
  std::copy(moves.begin(), moves.end(), to_moves);
  std::copy(ranges.begin(), ranges.end(), to_ranges);
  return decoder_->MoveTokens(to_moves, to_ranges, static_cast<int>(ranges.size()), stream_.get());
}

Result<std::vector<float>> GpuExecutor::ReadLogits() {
  std::vector<float> logits(int64_t{num_logits_} * limits_.vocab_size);
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaMemcpy2D(logits.data(), int64_t{limits_.vocab_size} * 4, decoder_->logits(),
                   int64_t{decoder_->logits_stride()} * 4, int64_t{limits_.vocab_size} * 4,
                   num_logits_, cudaMemcpyDeviceToHost));
  return logits;
}

Status GpuExecutor::CaptureHiddenStates(std::span<const int32_t> layers,
                                        llm::HiddenStatePlace place) {
  for (const int32_t layer : layers) {
    if (layer >= 0 && layer <= model_.spec.num_layers()) continue;
    return InvalidArgError("hidden states of layer ", layer, ": the model has layers 0 to ",
                           model_.spec.num_layers() - 1, ", and ", model_.spec.num_layers(),
                           " means its output");
  }
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  hidden_states_.SetPlace(place);
  NEREID_RETURN_IF_ERROR(decoder_->Capture({layers.begin(), layers.end()}));
  if (options_.group == nullptr || options_.rank > 0 || place == llm::HiddenStatePlace::kDevice)
    return {};
  // Now, because an allocation during a step may wait for all GPUs, one of which waits for this
  // one.
  return hidden_states_.Allocate(*decoder_->captured(), limits_.max_num_tokens);
}

}  // namespace nereid::gpu
