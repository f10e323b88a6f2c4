// GpuExecutor: sets up device, weights, decoder and cache, and runs steps. [engine thread]
#include "backends/gpu_llm/gpu_executor.h"

#include <algorithm>
#include <cstring>

#include "backends/gpu_llm/cache_budget.h"
#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/forms.h"
#include "backends/gpu_llm/kernels/sampling/logits.h"
#include "backends/gpu_llm/kernels/sampling/sample.h"
#include "backends/gpu_llm/kernels/sampling/top_tokens.h"

namespace nereid::gpu {
namespace {

// A longer gap between steps counts as waiting for requests, not as idle time.
constexpr double kMaxIdleGapSeconds = 5e-3;

// Logits that rules may change in one step, 16 bytes each.
constexpr int32_t kMaxEdits = 1 << 16;

// Makes the device current and returns the form of the kernels that it runs.
Result<KernelForm> SelectDevice(int32_t device) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (int driver = 0; error == cudaErrorInsufficientDriver &&
                      cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) {
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

StepPlannerOptions PlannerOptions(const llm::DecoderSpec& spec, int32_t num_processors,
                                  bool is_batch_invariant) {
  return {spec.num_heads, spec.num_kv_heads, num_processors,
          RopeTables::ShortPositionsOffset(spec, spec.max_positions), is_batch_invariant};
}

// Limits the model to sequences of at most `max_positions` tokens.
llm::DecoderModel WithPositionLimit(llm::DecoderModel model, int32_t max_positions) {
  llm::LimitPositions(model.spec, max_positions);
  return model;
}

// A dynamic rope is only supported up to its trained length, because the rope table has one row for
// each position, independent of the prompt's length.
Status CheckLimit(const llm::DecoderSpec& spec, int32_t max_positions) {
  for (const llm::RopeSpec& rope : spec.ropes) {
    if (rope.trained_positions > 0 && max_positions > rope.trained_positions) {
      return UnsupportedError("max_seq_len is ", max_positions, ", but gpu_llm serves a dynamic ",
                              "rope up to the ", rope.trained_positions,
                              " tokens that it was trained on (cpu_reference goes on)");
    }
  }
  return Status::Ok();
}

// Largest sliding window of all layers; 0 if a layer has none.
int32_t AttentionWindow(const llm::DecoderSpec& spec) {
  int32_t window = 0;
  for (const llm::LayerSpec& layer : spec.layers) {
    if (layer.sliding_window == 0) return 0;
    window = std::max(window, layer.sliding_window);
  }
  return window;
}

}  // namespace

Result<std::unique_ptr<GpuExecutor>> GpuExecutor::Create(llm::DecoderModel model,
                                                         const GpuExecutorOptions& options) {
  NEREID_ASSIGN_OR_RETURN(const Sharding sharding,
                          Sharding::Of(model.spec, options.rank,
                                       options.group == nullptr ? 1 : options.group->count()));
  model.spec = sharding.Local(model.spec);
  NEREID_RETURN_IF_ERROR(CheckGpuSupport(model));
  NEREID_RETURN_IF_ERROR(CheckLimit(model.spec, options.max_positions));
  if (options.group != nullptr &&
      (options.adapter_memory_fraction > 0.0 || options.adapter_memory_bytes > 0)) {
    return UnsupportedError("LoRA adapters on ", options.group->count(),
                            " GPUs: gpu_llm supports them on one GPU");
  }
  NEREID_ASSIGN_OR_RETURN(const KernelForm form, SelectDevice(options.device));
  if (form == KernelForm::kPortable) {
    NEREID_RETURN_IF_ERROR(
        CheckPortableSupport(options.group == nullptr ? 1 : options.group->count()));
  }
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
      draw_planner_(model_.spec.vocab_size, kMaxEdits),
      graphs_(options.group, options.on_warning),
      chain_graphs_(options.group, options.on_warning),
      adapter_graphs_(options.group, options.on_warning),
      adapter_chain_graphs_(options.group, options.on_warning),
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
  limits_.attention_window = AttentionWindow(spec);
  for (const llm::RopeSpec& rope : spec.ropes) {
    if (!rope.short_inv_freq.empty()) limits_.long_rope_positions = rope.short_positions;
  }
  limits_.max_num_sequences = std::max(1, options_.max_num_sequences);
  limits_.max_num_tokens = std::max(options_.max_num_tokens, limits_.max_num_sequences);
  limits_.block_size = kBlockTokens;
  // GPUs of a group get an urgent stream: a GPU must not wait behind a launch of another model that
  // itself waits for the whole GPU.
  NEREID_ASSIGN_OR_RETURN(stream_, MakeStream(options_.group != nullptr));
  NEREID_ASSIGN_OR_RETURN(weights_, LoadGpuWeights(model_, sharding_, options_.dummy));
  if (form_ == KernelForm::kPortable) weights_.KeepInputsInBf16();
  model_.weights.clear();  // the checkpoint is not needed any more
  DecoderLimits limits;
  // Draft tokens use the rows that sequences leave, so that they take no memory.
  const int32_t padded = StepPlanner::PaddedBatch(
      std::max(limits_.max_num_sequences, std::min(limits_.max_num_tokens, 128)));
  limits_.max_num_sampled = max_num_logits_ = limits.max_num_logits = padded;
  limits.max_num_tokens = std::max(limits_.max_num_tokens, padded);
  limits.max_positions = limits_.max_positions;
  limits.max_decode_items = planner_.MaxDecodeItems(padded);
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
  if (decoder_->fuses_decode()) {
    StepPlannerOptions planned = PlannerOptions(spec, num_processors_, options_.is_batch_invariant);
    planned.fused_rows = kDecodeStepRows;
    planner_ = StepPlanner(planned);
  }
  const int64_t table_words =
      int64_t{limits_.max_num_sequences} * (BlocksFor(limits_.max_positions) + 1);
  StepShape largest;
  largest.num_tokens = limits.max_num_tokens;
  largest.num_logits = limits.max_num_tokens;
  largest.num_decode = limits.max_decode_items;
  largest.has_adapters = adapters_ != nullptr;
  if (adapters_ != nullptr) {
    largest.num_adapter_tiles =
        limits.max_num_tokens / kAdapterTileRows + limits_.max_num_sequences;
  }
  const int32_t group = spec.num_heads / spec.num_kv_heads;
  largest.num_prefill = limits.max_num_tokens * group / kQueryRows + limits_.max_num_sequences + 1;
  const int64_t words_bytes = 4 * (StepLayout(largest).block_tables + table_words) +
                              max_num_logits_ * sizeof(DrawItem) + kMaxEdits * sizeof(LogitEdit) +
                              64;
  NEREID_ASSIGN_OR_RETURN(words_, DeviceMemory::Allocate(words_bytes, "the step's plan"));
  for (InFlightStep& in_flight : in_flight_) {
    NEREID_ASSIGN_OR_RETURN(in_flight.done, MakeEvent());
    NEREID_ASSIGN_OR_RETURN(in_flight.words, PinnedMemory::Allocate(words_bytes));
  }
  NEREID_ASSIGN_OR_RETURN(
      argmax_partials_,
      DeviceMemory::Allocate(sizeof(PartialArgMax) * kArgMaxSplits * max_num_logits_,
                             "partial results of sampling"));
  NEREID_ASSIGN_OR_RETURN(argmax_tickets_,
                          DeviceMemory::Allocate(4 * max_num_logits_, "sampling's counters"));
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemset(argmax_tickets_.data(), 0, argmax_tickets_.size_bytes()));
  NEREID_ASSIGN_OR_RETURN(log_sums_, DeviceMemory::Allocate(4 * max_num_logits_, "log sums"));
  NEREID_ASSIGN_OR_RETURN(sampled_, PinnedMemory::Allocate(16 * max_num_logits_));
  NEREID_ASSIGN_OR_RETURN(log_probs_, PinnedMemory::Allocate(8 * limits.max_num_tokens));
  return SizeCache();
}

Status GpuExecutor::MakeAdapters(int32_t max_num_rows) {
  DeviceAdaptersOptions options;
  options.memory_bytes = options_.adapter_memory_bytes;
  if (options.memory_bytes == 0) {
    size_t free_bytes = 0, total_bytes = 0;
    NEREID_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_bytes, &total_bytes));
    options.memory_bytes =
        static_cast<int64_t>(static_cast<double>(free_bytes) * options_.adapter_memory_fraction);
  }
  options.memory_bytes -= options.memory_bytes % AdapterSlots::kAlign;
  if (options.memory_bytes == 0) return {};
  options.max_rank = options_.max_adapter_rank;
  // Never fewer than sequences, so that only the memory limits how many adapters a step has.
  options.num_slots = std::max(1024, limits_.max_num_sequences);
  options.max_num_rows = max_num_rows;
  NEREID_ASSIGN_OR_RETURN(adapters_, DeviceAdapters::Create(model_.spec, options));
  decoder_->SetAdapters(adapters_.get());
  limits_.adapter_bytes = options.memory_bytes;
  return {};
}

Result<std::span<const int32_t>> GpuExecutor::LoadAdapters(const llm::StepBatch& batch) {
  if (batch.adapters.empty()) return std::span<const int32_t>();
  if (adapters_ == nullptr)
    return InternalError("a step has LoRA adapters, but there is no memory");
  std::optional<DeviceAdapters::RunningStep> running;
  if (num_submitted_ > num_collected_)
    running = {num_submitted_ - 1, in_flight_[(num_submitted_ - 1) % 2].done.get()};
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> slots,
                          adapters_->Load(batch.adapters, num_submitted_,
                                          running ? &*running : nullptr, stream_.get()));
  if (adapters_->groups() != adapter_groups_) {  // the recorded steps miss a product
    adapter_groups_ = adapters_->groups();
    adapter_graphs_.Forget();
    adapter_chain_graphs_.Forget();
  }
  return slots;
}

Status GpuExecutor::SizeCache() {
  size_t free_bytes = 0, total_bytes = 0;
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_bytes, &total_bytes));
  CacheBudget budget;
  budget.device = options_.device;
  budget.free_bytes = static_cast<int64_t>(free_bytes);
  budget.total_bytes = static_cast<int64_t>(total_bytes);
  budget.weight_bytes = static_cast<int64_t>(weights_.memory.size_bytes());
  budget.block_bytes = Decoder::CacheBlockBytes(model_.spec, options_.cache_format);
  budget.memory_fraction = options_.cache_memory_fraction;
  budget.max_tokens = options_.max_cache_tokens;
  budget.max_blocks = int64_t{limits_.max_num_sequences} * BlocksFor(limits_.max_positions);
  NEREID_ASSIGN_OR_RETURN(int64_t blocks, CountCacheBlocks(budget));
  if (options_.group != nullptr) {
    NEREID_ASSIGN_OR_RETURN(blocks, options_.group->WaitForAll(blocks));
  }
  limits_.num_blocks = static_cast<int32_t>(std::min<int64_t>(blocks, INT32_MAX / kBlockTokens));
  return decoder_->AllocateCache(limits_.num_blocks);
}

llm::ExecutorMemory GpuExecutor::memory() const {
  llm::ExecutorMemory memory;
  memory.gpu_bytes = static_cast<int64_t>(weights_.memory.size_bytes() + words_.size_bytes() +
                                          argmax_partials_.size_bytes()) +
                     decoder_->memory_bytes();
  memory.pinned_bytes = static_cast<int64_t>(sampled_.size_bytes());
  if (adapters_ != nullptr) {
    memory.gpu_bytes += adapters_->memory_bytes();
    memory.pinned_bytes += adapters_->pinned_bytes();
  }
  for (const InFlightStep& in_flight : in_flight_) {
    memory.pinned_bytes += static_cast<int64_t>(in_flight.words.size_bytes());
  }
  return memory;
}

// An 8B model in bf16 on an H100, in ms (bench/results/speculation_gpu.csv). The kernels of few
// rows read every weight once; from some hundreds of rows on, products take the time.
std::span<const llm::StepCostPoint> GpuExecutor::typical_step_costs() const {
  static constexpr llm::StepCostPoint kCosts[] = {{1, 5.07f},  {8, 5.57f},   {9, 6.05f},
                                                  {32, 6.37f}, {64, 7.04f},  {128, 7.64f},
                                                  {256, 9.5f}, {384, 12.5f}, {512, 15.5f}};
  return kCosts;
}

Status GpuExecutor::Submit(const llm::StepBatch& batch) {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  const auto buffer_index = static_cast<int32_t>(num_submitted_ % 2);
  InFlightStep& in_flight = in_flight_[buffer_index];
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> adapter_slots, LoadAdapters(batch));
  planner_.Plan(batch, buffer_index, adapter_slots);
  if (options_.rank == 0) draw_planner_.Plan(batch);
  const StepShape shape = planner_.shape();
  in_flight.rows.clear();
  in_flight.num_drafts.clear();
  in_flight.drafts.clear();
  in_flight.result = {};
  in_flight.log_prob_rows.clear();
  in_flight.top_tokens.clear();
  int32_t num_sampled = 0;
  bool needs_logits = false, needs_top_tokens = false;
  for (const llm::BatchEntry& sequence : batch.entries) {
    in_flight.rows.push_back(sequence.samples ? num_sampled : -1);
    num_sampled += sequence.samples ? 1 + sequence.num_draft_tokens : 0;
    if (sequence.num_draft_tokens > 0) {
      in_flight.num_drafts.resize(batch.entries.size());
      in_flight.num_drafts[in_flight.rows.size() - 1] = sequence.num_draft_tokens;
      const auto drafts = llm::DraftTokens(batch.token_ids, sequence);
      in_flight.drafts.insert(in_flight.drafts.end(), drafts.begin(), drafts.end());
    }
    needs_logits |=
        sequence.num_candidates > 0 || sequence.returns_logits || !sequence.next_ids.empty();
    needs_top_tokens |= sequence.num_top_tokens > 0;
  }
  if (num_steps_ == fail_at_) return CudaStatus(cudaErrorLaunchFailure, "an injected fault");
  NEREID_RETURN_IF_ERROR(Upload(buffer_index));
  if (timer_ != nullptr) timer_->BeginStep(planner_.is_decode(), batch, stream_.get());
  for (const llm::BlockCopy& copy : batch.block_copies)
    NEREID_RETURN_IF_ERROR(decoder_->CopyBlock(copy.from, copy.to, stream_.get()));
  const bool has_graph = planner_.is_decode() && options_.uses_graphs && timer_ == nullptr;
  bool is_launched = false;
  if (has_graph) {
    NEREID_ASSIGN_OR_RETURN(is_launched, GraphsOf(shape).Launch(shape.num_tokens, stream_.get()));
  }
  if (!is_launched) {
    NEREID_RETURN_IF_ERROR(decoder_->Forward(shape, words_.as<int32_t>(), true, stream_.get()));
    NEREID_RETURN_IF_ERROR(ComputeUnsampledRows(batch, shape, buffer_index));
    NEREID_RETURN_IF_ERROR(RunHead(shape, true));
  }
  const bool is_settled = decoder_->TakeSettled();
  in_flight.result.is_typical =
      is_settled && (is_launched || !has_graph || counts().num_failed_recordings > 0);
  if (has_graph && !is_launched) {
    const bool is_one_launch =
        decoder_->fuses_decode() && !shape.has_adapters && shape.num_tokens <= kDecodeStepRows;
    NEREID_RETURN_IF_ERROR(GraphsOf(shape).Record(
        shape.num_tokens, is_settled, is_one_launch ? 1 : options_.steps_before_recording,
        [&] { return Run(shape, false); }, stream_.get()));
  }
  if (shape.num_sampled > 0) num_logits_ = num_sampled;
  if (needs_logits && options_.rank == 0) {
    NEREID_RETURN_IF_ERROR(ExtractRows(batch, shape, 0, num_sampled, buffer_index));
    NEREID_RETURN_IF_ERROR(FindCandidates(batch, buffer_index));
  }
  if (needs_top_tokens && options_.rank == 0)
    NEREID_RETURN_IF_ERROR(FindTopTokensOfRows(batch, buffer_index));
  if (batch.has_token_masks && options_.rank == 0)
    NEREID_RETURN_IF_ERROR(UploadMasks(batch, buffer_index));
  NEREID_RETURN_IF_ERROR(Draw(shape));
  for (const DrawPlanner::HostDraw& draw : draw_planner_.on_host()) {
    NEREID_RETURN_IF_ERROR(DrawOnHost(batch, draw, buffer_index));
  }
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

StepGraphs& GpuExecutor::GraphsOf(const StepShape& shape) {
  if (shape.has_adapters) return shape.has_chains ? adapter_chain_graphs_ : adapter_graphs_;
  const bool is_fused = decoder_->fuses_decode() && shape.num_tokens <= kDecodeStepRows;
  return shape.has_chains && !is_fused ? chain_graphs_ : graphs_;
}

// The previous step of this buffer was collected, so its copy has completed.
Status GpuExecutor::Upload(int32_t buffer_index) {
  const std::span<const int32_t> words = planner_.words();
  const size_t items_at = (words.size_bytes() + 15) / 16 * 16;
  const size_t edits_at = items_at + (draw_planner_.items().size_bytes() + 15) / 16 * 16;
  const size_t size_bytes = draw_planner_.items().empty()
                                ? words.size_bytes()
                                : edits_at + draw_planner_.edits().size_bytes();
  if (size_bytes > words_.size_bytes()) {
    return InternalError("a step's plan takes ", size_bytes, " bytes, but its buffer has ",
                         words_.size_bytes());
  }
  char* to = in_flight_[buffer_index].words.as<char>();
  std::memcpy(to, words.data(), words.size_bytes());
  if (!draw_planner_.items().empty()) {
    std::memcpy(to + items_at, draw_planner_.items().data(), draw_planner_.items().size_bytes());
    std::memcpy(to + edits_at, draw_planner_.edits().data(), draw_planner_.edits().size_bytes());
  }
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(words_.data(), to, size_bytes, cudaMemcpyHostToDevice, stream_.get()));
  return {};
}

SampleTarget GpuExecutor::Target(const StepShape& shape) const {
  const StepLayout layout(shape);
  SampleTarget target = {};
  target.buffer_index = words_.as<int32_t>() + layout.buffer_index;
  target.ids = sampled_.as<int32_t>();
  target.log_probs = sampled_.as<float>() + 2 * max_num_logits_;
  target.slots = words_.as<int32_t>() + layout.logit_slots;
  target.last_tokens = decoder_->last_tokens();
  target.max_num_rows = max_num_logits_;
  return target;
}

Status GpuExecutor::Run(const StepShape& shape, bool may_time) {
  NEREID_RETURN_IF_ERROR(decoder_->Forward(shape, words_.as<int32_t>(), may_time, stream_.get()));
  return RunHead(shape, may_time);
}

Status GpuExecutor::RunHead(const StepShape& shape, bool may_time) {
  if (shape.num_sampled == 0) return {};
  NEREID_RETURN_IF_ERROR(decoder_->ComputeLogits(shape, words_.as<int32_t>(), 0, shape.num_sampled,
                                                 may_time, stream_.get()));
  if (options_.rank == 0) FindMostLikely(shape, 0, shape.num_sampled);
  return CudaStatus(cudaGetLastError(), "sampling");
}

void GpuExecutor::FindMostLikely(const StepShape& shape, int32_t first, int32_t count) {
  ArgMaxParams params = {};
  params.logits = decoder_->logits();
  params.partials = argmax_partials_.as<PartialArgMax>();
  params.tickets = argmax_tickets_.as<int32_t>();
  params.log_sums = log_sums_.as<float>();
  params.target = Target(shape);
  params.target.slots += first;
  params.num_rows = count;
  params.vocab_size = decoder_->logits_stride();
  if (timer_ != nullptr)
    timer_->Mark("most likely token", {4.0 * count * params.vocab_size}, stream_.get());
  ArgMax(params, stream_.get());
}

Status GpuExecutor::ComputeUnsampledRows(const llm::StepBatch& batch, const StepShape& shape,
                                         int32_t buffer_index) {
  for (int32_t first = shape.num_sampled; first < shape.num_logits; first += max_num_logits_) {
    const int32_t count = std::min(max_num_logits_, shape.num_logits - first);
    NEREID_RETURN_IF_ERROR(
        decoder_->ComputeLogits(shape, words_.as<int32_t>(), first, count, true, stream_.get()));
    if (options_.rank > 0) continue;
    FindMostLikely(shape, first, count);
    NEREID_RETURN_IF_ERROR(ExtractRows(batch, shape, first, count, buffer_index));
    num_logits_ = count;
  }
  return CudaStatus(cudaGetLastError(), "rows of logits");
}

Status GpuExecutor::ExtractRows(const llm::StepBatch& batch, const StepShape& shape, int32_t first,
                                int32_t count, int32_t buffer_index) {
  InFlightStep& in_flight = in_flight_[buffer_index];
  const auto rows = planner_.logit_rows().subspan(first, count);
  bool any_logits = false, any_log_probs = false;
  const int32_t log_probs_at = buffer_index * static_cast<int32_t>(log_probs_.size_bytes() / 8);
  for (int32_t i = 0; i < count; ++i) {
    const llm::BatchEntry& sequence = batch.entries[rows[i].sequence];
    any_logits |= sequence.returns_logits;
    if (rows[i].index < static_cast<int32_t>(sequence.next_ids.size())) {
      any_log_probs = true;
      in_flight.log_prob_rows.push_back({rows[i].sequence, log_probs_at + first + i});
    }
  }
  if (any_log_probs) {
    PickLogProbs({decoder_->logits(), log_sums_.as<float>(),
                  words_.as<int32_t>() + StepLayout(shape).next_ids + first,
                  log_probs_.as<float>() + log_probs_at + first, count, decoder_->logits_stride()},
                 stream_.get());
  }
  if (!any_logits) return {};
  NEREID_RETURN_IF_ERROR(CopyRows(0, count));
  in_flight.result.logits.resize(batch.entries.size());
  const int64_t vocab_size = limits_.vocab_size;
  for (int32_t i = 0; i < count; ++i) {
    const llm::BatchEntry& sequence = batch.entries[rows[i].sequence];
    if (!sequence.returns_logits) continue;
    std::vector<float>& to = in_flight.result.logits[rows[i].sequence];
    to.resize(sequence.num_logits * vocab_size);
    std::copy_n(host_logits_.begin() + i * vocab_size, vocab_size,
                to.begin() + rows[i].index * vocab_size);
  }
  return {};
}

// Copies rows of logits() to host_logits_ and waits.
Status GpuExecutor::CopyRows(int32_t first, int32_t count) {
  const int64_t row_bytes = int64_t{limits_.vocab_size} * 4;
  const int64_t stride = decoder_->logits_stride();
  host_logits_.resize(int64_t{limits_.vocab_size} * count);
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaMemcpy2DAsync(host_logits_.data(), row_bytes, decoder_->logits() + first * stride,
                        stride * 4, row_bytes, count, cudaMemcpyDeviceToHost, stream_.get()));
  return CudaStatus(cudaStreamSynchronize(stream_.get()), "rows of logits");
}

// Beam candidates are ranked on the host, which has the rules.
Status GpuExecutor::FindCandidates(const llm::StepBatch& batch, int32_t buffer_index) {
  InFlightStep& in_flight = in_flight_[buffer_index];
  for (size_t i = 0; i < batch.entries.size(); ++i) {
    const llm::BatchEntry& sequence = batch.entries[i];
    if (sequence.num_candidates == 0 || !sequence.samples) continue;
    NEREID_RETURN_IF_ERROR(CopyRows(in_flight.rows[i], 1));
    in_flight.result.candidates.resize(batch.entries.size());
    in_flight.result.candidates[i] =
        sampler_.Candidates(host_logits_, sequence.sampling, sequence.num_candidates);
  }
  return {};
}

Status GpuExecutor::FindTopTokensOfRows(const llm::StepBatch& batch, int32_t buffer_index) {
  const int32_t half = max_num_logits_ * kMaxTopTokens;  // ids of one of the two steps
  if (top_tokens_.size_bytes() == 0) {
    NEREID_ASSIGN_OR_RETURN(top_tokens_, PinnedMemory::Allocate(size_t{16} * half));
  }
  InFlightStep& in_flight = in_flight_[buffer_index];
  TopTokensParams params = {};
  params.logits = decoder_->logits();
  params.log_sums = log_sums_.as<float>();
  params.vocab_size = limits_.vocab_size;
  params.stride = decoder_->logits_stride();
  const auto launch = [&] {
    const auto first = static_cast<int32_t>(in_flight.top_tokens.size()) - params.num_rows;
    params.ids = top_tokens_.as<int32_t>() + buffer_index * half + first * kMaxTopTokens;
    params.log_probs = top_tokens_.as<float>() + (2 + buffer_index) * half + first * kMaxTopTokens;
    FindTopTokens(params, stream_.get());
    params.num_rows = 0;
  };
  for (size_t i = 0; i < batch.entries.size(); ++i) {
    const llm::BatchEntry& sequence = batch.entries[i];
    if (sequence.num_top_tokens == 0 || in_flight.rows[i] < 0) continue;
    const int32_t count =
        std::min({int32_t{sequence.num_top_tokens}, limits_.vocab_size, int32_t{kMaxTopTokens}});
    for (int32_t index = 0; index <= sequence.num_draft_tokens; ++index) {
      in_flight.top_tokens.push_back({static_cast<int32_t>(i), index, count});
      params.rows[params.num_rows] = in_flight.rows[i] + index;
      params.counts[params.num_rows] = static_cast<uint8_t>(count);
      if (++params.num_rows == kMaxTopTokenRows) launch();
    }
  }
  if (params.num_rows > 0) launch();
  return CudaStatus(cudaGetLastError(), "most likely tokens");
}

// Copies the masks of a step to the device. The engine's mask threads compute them while the
// executor launches the model.
Status GpuExecutor::UploadMasks(const llm::StepBatch& batch, int32_t buffer_index) {
  const auto num_words = static_cast<size_t>(llm::TokenMaskWords(limits_.vocab_size));
  const size_t size_bytes = 4 * num_words * static_cast<size_t>(max_num_logits_);
  if (masks_.size_bytes() == 0) {
    NEREID_ASSIGN_OR_RETURN(masks_, DeviceMemory::Allocate(size_bytes, "the masks of grammars"));
    NEREID_ASSIGN_OR_RETURN(host_masks_, PinnedMemory::Allocate(2 * size_bytes));
  }
  batch.wait_for_masks();
  const auto masks = draw_planner_.masks();
  if (masks.empty()) return {};  // all of these rows are sampled on the host
  uint32_t* const first = host_masks_.as<uint32_t>() + buffer_index * (size_bytes / 4);
  for (size_t i = 0; i < masks.size(); ++i) {
    std::copy_n(masks[i].begin(), std::min(num_words, masks[i].size()), first + i * num_words);
  }
  return CudaStatus(cudaMemcpyAsync(masks_.data(), first, 4 * num_words * masks.size(),
                                    cudaMemcpyHostToDevice, stream_.get()),
                    "the masks of grammars");
}

Status GpuExecutor::Draw(const StepShape& shape) {
  if (draw_planner_.items().empty()) return {};
  DrawParams params = {};
  params.logits = decoder_->logits();
  params.log_sums = log_sums_.as<float>();
  const size_t items_at = (planner_.words().size_bytes() + 15) / 16 * 16;
  const size_t edits_at = items_at + (draw_planner_.items().size_bytes() + 15) / 16 * 16;
  params.items = reinterpret_cast<const DrawItem*>(words_.as<char>() + items_at);
  params.edits = reinterpret_cast<LogitEdit*>(words_.as<char>() + edits_at);
  params.masks = masks_.as<uint32_t>();
  params.mask_words = static_cast<int>(llm::TokenMaskWords(limits_.vocab_size));
  params.target = Target(shape);
  params.num_items = static_cast<int>(draw_planner_.items().size());
  params.vocab_size = decoder_->logits_stride();
  if (timer_ != nullptr)
    timer_->Mark("draw", {4.0 * params.num_items * params.vocab_size}, stream_.get());
  DrawTokens(params, stream_.get());
  return CudaStatus(cudaGetLastError(), "drawing");
}

Status GpuExecutor::DrawOnHost(const llm::StepBatch& batch, const DrawPlanner::HostDraw& draw,
                               int32_t buffer_index) {
  NEREID_RETURN_IF_ERROR(CopyRows(draw.row, 1));
  const llm::BatchEntry& sequence = batch.entries[draw.sequence];
  llm::SamplingInput input = sequence.sampling;
  std::vector<int32_t> tokens(input.token_ids.begin(), input.token_ids.end());
  const auto drafts = llm::DraftTokens(batch.token_ids, sequence).first(draw.index);
  tokens.insert(tokens.end(), drafts.begin(), drafts.end());
  input.token_ids = tokens;
  const size_t mask_words = sequence.token_masks.size() / (1 + sequence.num_draft_tokens);
  input.token_mask = sequence.token_masks.subspan(draw.index * mask_words, mask_words);
  const llm::SampledToken token = sampler_.Sample(host_logits_, input);
  const int32_t at = buffer_index * max_num_logits_ + draw.row;
  sampled_.as<int32_t>()[at] = token.id;
  sampled_.as<float>()[2 * max_num_logits_ + at] = token.log_prob;
  // The slot keeps the valid id of FindMostLikely; with draft tokens, nothing reads it.
  if (token.id == llm::kNoToken || sequence.num_draft_tokens > 0) return {};
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(decoder_->last_tokens() + sequence.slot,
                                              sampled_.as<int32_t>() + at, 4,
                                              cudaMemcpyHostToDevice, stream_.get()));
  return {};
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
  for (const auto& [sequence, at] : in_flight.log_prob_rows) {
    result.prompt_log_probs.resize(in_flight.rows.size());
    result.prompt_log_probs[sequence].push_back(log_probs_.as<float>()[at]);
  }
  std::span<const int32_t> drafts = in_flight.drafts;
  for (size_t i = 0; i < in_flight.rows.size(); ++i)
    if (in_flight.rows[i] >= 0) TakeSampled(in_flight, buffer_index, i, drafts, result);
  for (size_t i = 0; i < in_flight.top_tokens.size(); ++i) {
    const auto [sequence, index, count] = in_flight.top_tokens[i];
    if (index > 0 && index > static_cast<int32_t>(result.accepted[sequence].size())) continue;
    const int32_t half = max_num_logits_ * kMaxTopTokens;
    const int32_t at = buffer_index * half + static_cast<int32_t>(i) * kMaxTopTokens;
    result.top_tokens.resize(in_flight.rows.size());
    for (int32_t k = 0; k < count; ++k) {
      result.top_tokens[sequence].push_back(
          {top_tokens_.as<int32_t>()[at + k], top_tokens_.as<float>()[2 * half + at + k]});
    }
  }
  return result;
}

void GpuExecutor::TakeSampled(const InFlightStep& in_flight, int32_t buffer_index, size_t sequence,
                              std::span<const int32_t>& drafts, llm::StepResult& result) const {
  const int32_t first = buffer_index * max_num_logits_ + in_flight.rows[sequence];
  const auto sampled = [&](size_t index) {
    const size_t at = static_cast<size_t>(first) + index;
    return llm::SampledToken{sampled_.as<int32_t>()[at],
                             sampled_.as<float>()[2 * max_num_logits_ + at]};
  };
  size_t num_accepted = 0;
  if (const size_t count = in_flight.num_drafts.empty() ? 0 : in_flight.num_drafts[sequence];
      count > 0) {
    result.accepted.resize(in_flight.rows.size());
    for (; num_accepted < count && sampled(num_accepted).id == drafts[num_accepted]; ++num_accepted)
      result.accepted[sequence].push_back(sampled(num_accepted));
    drafts = drafts.subspan(count);
  }
  result.tokens[sequence] = sampled(num_accepted);
}

Result<std::vector<float>> GpuExecutor::ReadLogits() {
  std::vector<float> logits(int64_t{num_logits_} * limits_.vocab_size);
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaMemcpy2D(logits.data(), int64_t{limits_.vocab_size} * 4, decoder_->logits(),
                   int64_t{decoder_->logits_stride()} * 4, int64_t{limits_.vocab_size} * 4,
                   num_logits_, cudaMemcpyDeviceToHost));
  return logits;
}

}  // namespace nereid::gpu
