// Executor on one GPU.
#include "backends/gpu_llm/gpu_executor.h"

#include <algorithm>
#include <cstring>

#include "backends/gpu_llm/cache_budget.h"
#include "backends/gpu_llm/cuda/device.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/sampling/draw.h"
#include "backends/gpu_llm/kernels/sampling/pick_log_probs.h"

namespace nereid::gpu {
namespace {

// Seconds; a longer gap between steps is a wait for requests.
constexpr double kLongestGap = 5e-3;

// Logits that rules may change in one step, 16 bytes each.
constexpr int32_t kMaxEdits = 1 << 16;

Result<int32_t> OpenDevice(int32_t device) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    return UnavailableError("no GPU: ",
                            error == cudaSuccess ? "none is visible" : cudaGetErrorString(error));
  }
  if (device < 0 || device >= count) {
    return InvalidArgError("gpu_device_ids names GPU ", device, ", expected 0 to ", count - 1);
  }
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(device));
  NEREID_ASSIGN_OR_RETURN(const int major,
                          DeviceAttribute(cudaDevAttrComputeCapabilityMajor, device));
  NEREID_ASSIGN_OR_RETURN(const int minor,
                          DeviceAttribute(cudaDevAttrComputeCapabilityMinor, device));
  if (major != 9 || minor != 0) {
    return UnsupportedError("GPU ", device, " has compute capability ", major, ".", minor,
                            ", gpu_llm runs on 9.0 (Hopper)");
  }
  return DeviceAttribute(cudaDevAttrMultiProcessorCount, device);
}

StepPlannerOptions PlannerOptions(const llm::DecoderSpec& spec, int32_t num_processors,
                                  bool is_invariant) {
  return {spec.num_heads, spec.num_kv_heads, num_processors,
          RopeTables::ShortPositionsOffset(spec, spec.max_positions), is_invariant};
}

// Of the decoder itself, and of sequences that are at most so long.
llm::DecoderModel Limited(llm::DecoderModel model, int32_t max_positions) {
  llm::LimitPositions(model.spec, max_positions);
  return model;
}

// A table of angles has one row a position, whatever the length of the prompt.
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

// What the layer that looks back furthest sees; 0 when one sees everything.
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
  NEREID_ASSIGN_OR_RETURN(const int32_t num_processors, OpenDevice(options.device));
  std::unique_ptr<GpuExecutor> executor(
      new GpuExecutor(std::move(model), sharding, options, num_processors));
  NEREID_RETURN_IF_ERROR(executor->Initialize());
  return executor;
}

GpuExecutor::GpuExecutor(llm::DecoderModel model, const Sharding& sharding,
                         const GpuExecutorOptions& options, int32_t num_processors)
    : sharding_(sharding),
      model_(Limited(std::move(model), options.max_positions)),
      options_(options),
      planner_(PlannerOptions(model_.spec, num_processors, options.is_invariant)),
      draws_(model_.spec.vocab_size, kMaxEdits),
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
  limits_.attention_window = AttentionWindow(spec);
  for (const llm::RopeSpec& rope : spec.ropes) {
    if (!rope.short_inv_freq.empty()) limits_.long_positions = rope.short_positions;
  }
  limits_.max_num_sequences = std::max(1, options_.max_num_sequences);
  limits_.max_num_tokens = std::max(options_.max_num_tokens, limits_.max_num_sequences);
  limits_.block_size = kBlockTokens;
  // GPUs that wait for each other may not wait for a launch that itself waits for a whole GPU.
  NEREID_ASSIGN_OR_RETURN(stream_, MakeStream(options_.group != nullptr));
  NEREID_ASSIGN_OR_RETURN(weights_, LoadGpuWeights(model_, sharding_, options_.dummy));
  model_.weights.clear();  // the checkpoint is not needed any more
  DecoderLimits limits;
  const int32_t padded = StepPlanner::PaddedBatch(limits_.max_num_sequences);
  limits.max_num_tokens = std::max(limits_.max_num_tokens, padded);
  max_num_logits_ = limits.max_num_logits = std::max(padded, std::min(limits_.max_num_tokens, 128));
  limits.max_positions = limits_.max_positions;
  limits.max_decode_items = planner_.MaxDecodeItems(padded);
  limits.max_num_sequences = padded;
  limits.num_processors = num_processors_;
  limits.cache_format = options_.cache_format;
  limits.is_invariant = options_.is_invariant;
  limits.fuses_decode = options_.fuses_decode && options_.profile_steps == 0;
  NEREID_ASSIGN_OR_RETURN(Decoder decoder,
                          Decoder::Create(spec, weights_, limits, {options_.group, sharding_}));
  decoder_.emplace(std::move(decoder));
  if (options_.profile_steps > 0) {
    NEREID_ASSIGN_OR_RETURN(timer_, OperatorTimer::Create(options_.device, options_.profile_steps,
                                                          options_.on_profile));
    decoder_->SetTimer(timer_.get());
  }
  if (decoder_->fuses_decode()) {
    StepPlannerOptions planned = PlannerOptions(spec, num_processors_, options_.is_invariant);
    planned.fused_rows = kDecodeStepRows;
    planner_ = StepPlanner(planned);
  }
  const int64_t table_words =
      int64_t{limits_.max_num_sequences} * (BlocksFor(limits_.max_positions) + 1);
  StepShape largest;
  largest.num_tokens = limits.max_num_tokens;
  largest.num_logits = limits.max_num_tokens;
  largest.num_decode = limits.max_decode_items;
  const int32_t group = spec.num_heads / spec.num_kv_heads;
  largest.num_prefill = limits.max_num_tokens * group / kQueryRows + limits_.max_num_sequences + 1;
  const int64_t words_bytes = 4 * (StepLayout(largest).block_tables + table_words) +
                              max_num_logits_ * sizeof(DrawItem) + kMaxEdits * sizeof(LogitEdit) +
                              64;
  NEREID_ASSIGN_OR_RETURN(words_, DeviceMemory::Allocate(words_bytes, "the step's plan"));
  for (Flight& flight : flights_) {
    NEREID_ASSIGN_OR_RETURN(flight.done, MakeEvent());
    NEREID_ASSIGN_OR_RETURN(flight.words, PinnedMemory::Allocate(words_bytes));
  }
  NEREID_ASSIGN_OR_RETURN(
      argmax_parts_, DeviceMemory::Allocate(sizeof(ArgMaxPart) * kArgMaxParts * max_num_logits_,
                                            "parts of sampling"));
  NEREID_ASSIGN_OR_RETURN(argmax_tickets_,
                          DeviceMemory::Allocate(4 * max_num_logits_, "sampling's tickets"));
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemset(argmax_tickets_.data(), 0, argmax_tickets_.size_bytes()));
  NEREID_ASSIGN_OR_RETURN(log_sums_, DeviceMemory::Allocate(4 * max_num_logits_, "log sums"));
  NEREID_ASSIGN_OR_RETURN(sampled_, PinnedMemory::Allocate(16 * max_num_logits_));
  NEREID_ASSIGN_OR_RETURN(log_probs_, PinnedMemory::Allocate(8 * limits.max_num_tokens));
  return SizeCache();
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
  budget.most_blocks = int64_t{limits_.max_num_sequences} * BlocksFor(limits_.max_positions);
  NEREID_ASSIGN_OR_RETURN(int64_t blocks, CountCacheBlocks(budget));
  if (options_.group != nullptr) {
    NEREID_ASSIGN_OR_RETURN(blocks, options_.group->Meet(blocks));
  }
  limits_.num_blocks = static_cast<int32_t>(std::min<int64_t>(blocks, INT32_MAX / kBlockTokens));
  return decoder_->AllocateCache(limits_.num_blocks);
}

llm::ExecutorMemory GpuExecutor::memory() const {
  llm::ExecutorMemory memory;
  memory.gpu_bytes = static_cast<int64_t>(weights_.memory.size_bytes() + words_.size_bytes() +
                                          argmax_parts_.size_bytes()) +
                     decoder_->memory_bytes();
  memory.pinned_bytes = static_cast<int64_t>(sampled_.size_bytes());
  for (const Flight& flight : flights_) {
    memory.pinned_bytes += static_cast<int64_t>(flight.words.size_bytes());
  }
  return memory;
}

Status GpuExecutor::Submit(const llm::Batch& batch) {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  const auto half = static_cast<int32_t>(num_submitted_ % 2);
  Flight& flight = flights_[half];
  planner_.Plan(batch, half);
  if (options_.rank == 0) draws_.Plan(batch);
  const StepShape shape = planner_.shape();
  flight.rows.clear();
  flight.more = {};
  flight.log_prob_rows.clear();
  int32_t num_sampled = 0;
  bool wants_more = false;
  for (const llm::BatchSequence& sequence : batch.sequences) {
    flight.rows.push_back(sequence.samples ? num_sampled++ : -1);
    wants_more |=
        sequence.num_candidates > 0 || sequence.returns_logits || !sequence.next_ids.empty();
  }
  if (num_steps_ == fail_at_) return CudaStatus(cudaErrorLaunchFailure, "an injected fault");
  NEREID_RETURN_IF_ERROR(Upload(half));
  if (timer_ != nullptr) timer_->BeginStep(planner_.is_decode(), batch, stream_.get());
  for (const llm::BlockCopy& copy : batch.block_copies)
    NEREID_RETURN_IF_ERROR(decoder_->CopyBlock(copy.from, copy.to, stream_.get()));
  const bool has_graph = planner_.is_decode() && options_.uses_graphs && timer_ == nullptr;
  bool is_launched = false;
  if (has_graph) {
    NEREID_ASSIGN_OR_RETURN(is_launched, graphs_.Launch(shape.num_tokens, stream_.get()));
  }
  if (!is_launched) {
    NEREID_RETURN_IF_ERROR(decoder_->Forward(shape, words_.as<int32_t>(), true, stream_.get()));
    NEREID_RETURN_IF_ERROR(TakeOtherRows(batch, shape, half));
    NEREID_RETURN_IF_ERROR(RunHead(shape, true));
  }
  const bool is_settled = decoder_->TakeSettled();
  if (has_graph && !is_launched) {
    const bool is_one_launch = decoder_->fuses_decode() && shape.num_tokens <= kDecodeStepRows;
    NEREID_RETURN_IF_ERROR(graphs_.Record(
        shape.num_tokens, is_settled, is_one_launch ? 1 : options_.steps_before_recording,
        [&] { return Run(shape, false); }, stream_.get()));
  }
  if (shape.num_sampled > 0) num_logits_ = num_sampled;
  if (wants_more && options_.rank == 0) {
    NEREID_RETURN_IF_ERROR(TakeRows(batch, shape, 0, num_sampled, half));
    NEREID_RETURN_IF_ERROR(FindCandidates(batch, half));
  }
  NEREID_RETURN_IF_ERROR(Draw(shape));
  for (const int32_t i : draws_.on_host()) {
    NEREID_RETURN_IF_ERROR(DrawOnHost(batch.sequences[i], flight.rows[i], half));
  }
  if (options_.group != nullptr && shape.num_sampled > 0) {
    ShareTokens(options_.group->peers(options_.rank), limits_.max_num_sequences, stream_.get());
    NEREID_RETURN_IF_CUDA_ERROR(cudaGetLastError());
  }
  if (timer_ != nullptr) NEREID_RETURN_IF_ERROR(timer_->EndStep(stream_.get()));
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(flight.done.get(), stream_.get()));
  ++num_steps_;
  ++num_submitted_;
  if (collected_) {
    const std::chrono::duration<double> gap = std::chrono::steady_clock::now() - *collected_;
    if (gap.count() < kLongestGap) idle_seconds_ += gap.count();
    collected_.reset();
  }
  return {};
}

// The half's previous step was collected: its copy is done.
Status GpuExecutor::Upload(int32_t half) {
  const std::span<const int32_t> words = planner_.words();
  const size_t items_at = (words.size_bytes() + 15) / 16 * 16;
  const size_t edits_at = items_at + (draws_.items().size_bytes() + 15) / 16 * 16;
  const size_t size_bytes =
      draws_.items().empty() ? words.size_bytes() : edits_at + draws_.edits().size_bytes();
  if (size_bytes > words_.size_bytes()) {
    return InternalError("a step's plan takes ", size_bytes, " bytes, ", words_.size_bytes(),
                         " are there");
  }
  char* to = flights_[half].words.as<char>();
  std::memcpy(to, words.data(), words.size_bytes());
  if (!draws_.items().empty()) {
    std::memcpy(to + items_at, draws_.items().data(), draws_.items().size_bytes());
    std::memcpy(to + edits_at, draws_.edits().data(), draws_.edits().size_bytes());
  }
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(words_.data(), to, size_bytes, cudaMemcpyHostToDevice, stream_.get()));
  return {};
}

SampleTarget GpuExecutor::Target(const StepShape& shape) const {
  const StepLayout layout(shape);
  SampleTarget target = {};
  target.half = words_.as<int32_t>() + layout.half;
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
  if (options_.rank == 0) FindLikeliest(shape, 0, shape.num_sampled);
  return CudaStatus(cudaGetLastError(), "sampling");
}

void GpuExecutor::FindLikeliest(const StepShape& shape, int32_t first, int32_t count) {
  ArgMaxParams params = {};
  params.logits = decoder_->logits();
  params.parts = argmax_parts_.as<ArgMaxPart>();
  params.tickets = argmax_tickets_.as<int32_t>();
  params.log_sums = log_sums_.as<float>();
  params.target = Target(shape);
  params.target.slots += first;
  params.num_rows = count;
  params.vocab_size = decoder_->logits_stride();
  if (timer_ != nullptr)
    timer_->Mark("likeliest token", {4.0 * count * params.vocab_size}, stream_.get());
  ArgMax(params, stream_.get());
}

Status GpuExecutor::TakeOtherRows(const llm::Batch& batch, const StepShape& shape, int32_t half) {
  for (int32_t first = shape.num_sampled; first < shape.num_logits; first += max_num_logits_) {
    const int32_t count = std::min(max_num_logits_, shape.num_logits - first);
    NEREID_RETURN_IF_ERROR(
        decoder_->ComputeLogits(shape, words_.as<int32_t>(), first, count, true, stream_.get()));
    if (options_.rank > 0) continue;
    FindLikeliest(shape, first, count);
    NEREID_RETURN_IF_ERROR(TakeRows(batch, shape, first, count, half));
    num_logits_ = count;
  }
  return CudaStatus(cudaGetLastError(), "rows of logits");
}

Status GpuExecutor::TakeRows(const llm::Batch& batch, const StepShape& shape, int32_t first,
                             int32_t count, int32_t half) {
  Flight& flight = flights_[half];
  const auto rows = planner_.logit_rows().subspan(first, count);
  bool any_logits = false, any_log_probs = false;
  const int32_t log_probs_at = half * static_cast<int32_t>(log_probs_.size_bytes() / 8);
  for (int32_t i = 0; i < count; ++i) {
    const llm::BatchSequence& sequence = batch.sequences[rows[i].sequence];
    any_logits |= sequence.returns_logits;
    if (rows[i].index < static_cast<int32_t>(sequence.next_ids.size())) {
      any_log_probs = true;
      flight.log_prob_rows.push_back({rows[i].sequence, log_probs_at + first + i});
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
  flight.more.logits.resize(batch.sequences.size());
  const int64_t vocab_size = limits_.vocab_size;
  for (int32_t i = 0; i < count; ++i) {
    const llm::BatchSequence& sequence = batch.sequences[rows[i].sequence];
    if (!sequence.returns_logits) continue;
    std::vector<float>& to = flight.more.logits[rows[i].sequence];
    to.resize(sequence.num_logits * vocab_size);
    std::copy_n(host_logits_.begin() + i * vocab_size, vocab_size,
                to.begin() + rows[i].index * vocab_size);
  }
  return {};
}

// Rows of logits() to host_logits_; waits for them.
Status GpuExecutor::CopyRows(int32_t first, int32_t count) {
  const int64_t row_bytes = int64_t{limits_.vocab_size} * 4;
  const int64_t stride = decoder_->logits_stride();
  host_logits_.resize(int64_t{limits_.vocab_size} * count);
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaMemcpy2DAsync(host_logits_.data(), row_bytes, decoder_->logits() + first * stride,
                        stride * 4, row_bytes, count, cudaMemcpyDeviceToHost, stream_.get()));
  return CudaStatus(cudaStreamSynchronize(stream_.get()), "rows of logits");
}

// Of beams: the rules and the order are the host's.
Status GpuExecutor::FindCandidates(const llm::Batch& batch, int32_t half) {
  Flight& flight = flights_[half];
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const llm::BatchSequence& sequence = batch.sequences[i];
    if (sequence.num_candidates == 0 || !sequence.samples) continue;
    NEREID_RETURN_IF_ERROR(CopyRows(flight.rows[i], 1));
    flight.more.candidates.resize(batch.sequences.size());
    flight.more.candidates[i] =
        sampler_.Candidates(host_logits_, sequence.sampling, sequence.num_candidates);
  }
  return {};
}

Status GpuExecutor::Draw(const StepShape& shape) {
  if (draws_.items().empty()) return {};
  DrawParams params = {};
  params.logits = decoder_->logits();
  params.log_sums = log_sums_.as<float>();
  const size_t items_at = (planner_.words().size_bytes() + 15) / 16 * 16;
  const size_t edits_at = items_at + (draws_.items().size_bytes() + 15) / 16 * 16;
  params.items = reinterpret_cast<const DrawItem*>(words_.as<char>() + items_at);
  params.edits = reinterpret_cast<LogitEdit*>(words_.as<char>() + edits_at);
  params.target = Target(shape);
  params.num_items = static_cast<int>(draws_.items().size());
  params.vocab_size = decoder_->logits_stride();
  if (timer_ != nullptr)
    timer_->Mark("draw", {4.0 * params.num_items * params.vocab_size}, stream_.get());
  DrawTokens(params, stream_.get());
  return CudaStatus(cudaGetLastError(), "drawing");
}

Status GpuExecutor::DrawOnHost(const llm::BatchSequence& sequence, int32_t row, int32_t half) {
  NEREID_RETURN_IF_ERROR(CopyRows(row, 1));
  const llm::SampledToken token = sampler_.Sample(host_logits_, sequence.sampling);
  const int32_t at = half * max_num_logits_ + row;
  sampled_.as<int32_t>()[at] = token.id;
  sampled_.as<float>()[2 * max_num_logits_ + at] = token.log_prob;
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(decoder_->last_tokens() + sequence.slot,
                                              sampled_.as<int32_t>() + at, 4,
                                              cudaMemcpyHostToDevice, stream_.get()));
  return {};
}

Result<llm::StepResult> GpuExecutor::Collect() {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  const auto half = static_cast<int32_t>(num_collected_ % 2);
  Flight& flight = flights_[half];
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(flight.done.get()));
  if (options_.group != nullptr) NEREID_RETURN_IF_ERROR(options_.group->status());
  if (timer_ != nullptr) NEREID_RETURN_IF_ERROR(timer_->Collect());
  ++num_collected_;
  if (num_collected_ == num_submitted_) collected_ = std::chrono::steady_clock::now();
  llm::StepResult result = std::move(flight.more);
  if (options_.rank > 0) return result;
  result.tokens.resize(flight.rows.size());
  for (const auto& [sequence, at] : flight.log_prob_rows) {
    result.prompt_log_probs.resize(flight.rows.size());
    result.prompt_log_probs[sequence].push_back(log_probs_.as<float>()[at]);
  }
  for (size_t i = 0; i < flight.rows.size(); ++i) {
    if (flight.rows[i] < 0) continue;
    const int32_t at = half * max_num_logits_ + flight.rows[i];
    result.tokens[i].id = sampled_.as<int32_t>()[at];
    result.tokens[i].log_prob = sampled_.as<float>()[2 * max_num_logits_ + at];
  }
  return result;
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
