// Executor on one GPU.
#include "gpu_llm/gpu_executor.h"

#include <algorithm>
#include <cstring>

#include "gpu_llm/kernels/cache_layout.h"

namespace nereid::gpu {
namespace {

// Seconds; a longer gap between steps is a wait for requests.
constexpr double kLongestGap = 5e-3;

int32_t BlocksFor(int64_t tokens) {
  return static_cast<int32_t>((tokens + kBlockTokens - 1) / kBlockTokens);
}

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
  int major = 0, minor = 0, processors = 0;
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  if (major != 9 || minor != 0) {
    return UnsupportedError("GPU ", device, " has compute capability ", major, ".", minor,
                            ", gpu_llm runs on 9.0 (Hopper)");
  }
  return processors;
}

StepPlannerOptions PlannerOptions(const llm::DecoderSpec& spec, int32_t num_processors) {
  return {spec.num_heads, spec.num_kv_heads, num_processors};
}

}  // namespace

Result<std::unique_ptr<GpuExecutor>> GpuExecutor::Create(llm::DecoderModel model,
                                                         const GpuExecutorOptions& options) {
  NEREID_RETURN_IF_ERROR(CheckGpuSupport(model));
  NEREID_ASSIGN_OR_RETURN(const int32_t num_processors, OpenDevice(options.device));
  std::unique_ptr<GpuExecutor> executor(new GpuExecutor(std::move(model), options, num_processors));
  NEREID_RETURN_IF_ERROR(executor->Initialize());
  return executor;
}

GpuExecutor::GpuExecutor(llm::DecoderModel model, const GpuExecutorOptions& options,
                         int32_t num_processors)
    : model_(std::move(model)),
      options_(options),
      planner_(PlannerOptions(model_.spec, num_processors)),
      num_processors_(num_processors) {}

GpuExecutor::~GpuExecutor() {
  (void)cudaSetDevice(options_.device);
  if (stream_) (void)cudaStreamSynchronize(stream_.get());
}

Status GpuExecutor::Initialize() {
  const llm::DecoderSpec& spec = model_.spec;
  limits_.vocab_size = spec.vocab_size;
  limits_.max_positions = options_.max_positions > 0
                              ? std::min(options_.max_positions, spec.max_positions)
                              : spec.max_positions;
  llm::LimitPositions(model_.spec, limits_.max_positions);
  limits_.max_num_sequences = std::max(1, options_.max_num_sequences);
  limits_.max_num_tokens = std::max(options_.max_num_tokens, limits_.max_num_sequences);
  limits_.block_size = kBlockTokens;
  NEREID_ASSIGN_OR_RETURN(stream_, MakeStream());
  NEREID_ASSIGN_OR_RETURN(done_, MakeEvent());
  NEREID_ASSIGN_OR_RETURN(weights_, LoadGpuWeights(model_, options_.dummy));
  model_.weights.clear();  // the checkpoint is not needed any more
  DecoderLimits limits;
  const int32_t padded = StepPlanner::PaddedBatch(limits_.max_num_sequences);
  limits.max_num_tokens = std::max(limits_.max_num_tokens, padded);
  max_num_logits_ = limits.max_num_logits = std::max(padded, std::min(limits_.max_num_tokens, 128));
  limits.max_positions = limits_.max_positions;
  limits.max_decode_items = planner_.MaxDecodeItems(padded);
  limits.max_num_sequences = padded;
  limits.num_processors = num_processors_;
  NEREID_ASSIGN_OR_RETURN(Decoder decoder, Decoder::Create(spec, weights_, limits));
  decoder_.emplace(std::move(decoder));
  const int64_t table_words =
      int64_t{limits_.max_num_sequences} * (BlocksFor(limits_.max_positions) + 1);
  StepShape largest;
  largest.num_tokens = limits.max_num_tokens;
  largest.num_logits = limits.max_num_logits;
  largest.num_decode = limits.max_decode_items;
  const int32_t group = spec.num_heads / spec.num_kv_heads;
  largest.num_prefill = limits.max_num_tokens * group / kQueryRows + limits_.max_num_sequences + 1;
  const int64_t words_bytes = 4 * (StepLayout(largest).block_tables + table_words);
  NEREID_ASSIGN_OR_RETURN(words_, DeviceMemory::Allocate(words_bytes, "the step's plan"));
  NEREID_ASSIGN_OR_RETURN(pinned_words_, PinnedMemory::Allocate(words_bytes));
  NEREID_ASSIGN_OR_RETURN(
      argmax_parts_, DeviceMemory::Allocate(sizeof(ArgMaxPart) * kArgMaxParts * max_num_logits_,
                                            "parts of sampling"));
  NEREID_ASSIGN_OR_RETURN(argmax_tickets_,
                          DeviceMemory::Allocate(4 * max_num_logits_, "sampling's tickets"));
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemset(argmax_tickets_.data(), 0, argmax_tickets_.size_bytes()));
  NEREID_ASSIGN_OR_RETURN(sampled_, PinnedMemory::Allocate(8 * max_num_logits_));
  return SizeCache();
}

Status GpuExecutor::SizeCache() {
  size_t free_bytes = 0, total_bytes = 0;
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_bytes, &total_bytes));
  const int64_t block_bytes = Decoder::CacheBlockBytes(model_.spec);
  const double fraction = options_.cache_memory_fraction;
  const auto budget = static_cast<int64_t>(static_cast<double>(free_bytes) * fraction);
  int64_t blocks = budget / block_bytes;
  if (options_.max_cache_tokens > 0) {
    const int64_t wanted = BlocksFor(options_.max_cache_tokens);
    if (wanted * block_bytes > static_cast<int64_t>(free_bytes)) {
      return UnavailableError("max_tokens_in_paged_kv_cache ", options_.max_cache_tokens, " needs ",
                              wanted, " blocks x ", block_bytes, " bytes = ", wanted * block_bytes,
                              "; GPU ", options_.device, " has ", free_bytes, " of ", total_bytes,
                              " bytes free beside ", weights_.memory.size_bytes(), " of weights");
    }
    blocks = wanted;
  }
  // More than all sequences at full length is never used.
  blocks = std::min(blocks, int64_t{limits_.max_num_sequences} * BlocksFor(limits_.max_positions));
  if (blocks < 1) {
    return UnavailableError("kv_cache_free_gpu_mem_fraction ", fraction, " of ", free_bytes,
                            " free bytes is less than one ", "KV block of ", block_bytes,
                            " bytes; GPU ", options_.device, " has ", total_bytes,
                            " bytes, the weights take ", weights_.memory.size_bytes());
  }
  limits_.num_blocks = static_cast<int32_t>(std::min<int64_t>(blocks, INT32_MAX / kBlockTokens));
  return decoder_->AllocateCache(limits_.num_blocks);
}

Status GpuExecutor::Submit(const llm::Batch& batch) {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  planner_.Plan(batch);
  const StepShape shape = planner_.shape();
  if (shape.num_logits > max_num_logits_) {
    return UnsupportedError("a step wants ", shape.num_logits,
                            " rows of logits, gpu_llm has room for ", max_num_logits_);
  }
  submitted_ = batch.sequences;
  NEREID_RETURN_IF_ERROR(Upload());
  if (planner_.is_decode() && options_.uses_graphs) {
    NEREID_ASSIGN_OR_RETURN(const cudaGraphExec_t graph, FindGraph(shape));
    NEREID_RETURN_IF_CUDA_ERROR(cudaGraphLaunch(graph, stream_.get()));
    ++num_graph_steps_;
  } else {
    NEREID_RETURN_IF_ERROR(Run(shape, true));
  }
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(done_.get(), stream_.get()));
  ++num_steps_;
  if (collected_) {
    const std::chrono::duration<double> gap = std::chrono::steady_clock::now() - *collected_;
    if (gap.count() < kLongestGap) idle_seconds_ += gap.count();
  }
  return {};
}

Status GpuExecutor::Upload() {
  const std::span<const int32_t> words = planner_.words();
  if (words.size_bytes() > words_.size_bytes()) {
    return InternalError("a step's plan takes ", words.size_bytes(), " bytes, ",
                         words_.size_bytes(), " are there");
  }
  std::memcpy(pinned_words_.as<int32_t>(), words.data(), words.size_bytes());
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(words_.data(), pinned_words_.as<int32_t>(),
                                              words.size_bytes(), cudaMemcpyHostToDevice,
                                              stream_.get()));
  return {};
}

Status GpuExecutor::Run(const StepShape& shape, bool may_time) {
  NEREID_RETURN_IF_ERROR(decoder_->Forward(shape, words_.as<int32_t>(), may_time, stream_.get()));
  if (shape.num_logits == 0) return {};
  ArgMaxParams params = {};
  params.logits = decoder_->logits();
  params.parts = argmax_parts_.as<ArgMaxPart>();
  params.tickets = argmax_tickets_.as<int32_t>();
  params.ids = sampled_.as<int32_t>();
  params.log_probs = sampled_.as<float>() + max_num_logits_;
  params.num_rows = shape.num_logits;
  params.vocab_size = limits_.vocab_size;
  ArgMax(params, stream_.get());
  return CudaStatus(cudaGetLastError(), "sampling");
}

// Recorded at the first step of its size, which is run as it is once before, so that the algorithms
// of products are known.
Result<cudaGraphExec_t> GpuExecutor::FindGraph(const StepShape& shape) {
  Graph& graph = graphs_[shape.num_tokens];
  if (graph) return graph.get();
  NEREID_RETURN_IF_ERROR(Run(shape, true));
  NEREID_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_.get()));
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal));
  const Status recorded = Run(shape, false);
  cudaGraph_t nodes = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream_.get(), &nodes);
  NEREID_RETURN_IF_ERROR(recorded);
  NEREID_RETURN_IF_ERROR(CudaStatus(ended, "cudaStreamEndCapture"));
  cudaGraphExec_t executable = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&executable, nodes, 0);
  (void)cudaGraphDestroy(nodes);
  NEREID_RETURN_IF_ERROR(CudaStatus(made, "cudaGraphInstantiate"));
  graph = Graph(executable);
  return graph.get();
}

Result<llm::StepResult> GpuExecutor::Collect() {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(done_.get()));
  collected_ = std::chrono::steady_clock::now();
  llm::StepResult result;
  result.tokens.resize(submitted_.size());
  int32_t row = 0;
  for (size_t i = 0; i < submitted_.size(); ++i) {
    const llm::BatchSequence& sequence = submitted_[i];
    row += sequence.num_logits;
    if (!sequence.samples) continue;
    const llm::SamplingParams& params = *sequence.sampling.params;
    if (params.is_greedy() && !params.changes_logits() && sequence.sampling.banned_ids.empty()) {
      result.tokens[i].id = sampled_.as<int32_t>()[row - 1];
      if (params.want_log_probs)
        result.tokens[i].log_prob = sampled_.as<float>()[max_num_logits_ + row - 1];
    } else {
      NEREID_RETURN_IF_ERROR(SampleOnHost(sequence, row - 1, result.tokens[i]));
    }
  }
  return result;
}

Status GpuExecutor::SampleOnHost(const llm::BatchSequence& sequence, int32_t row,
                                 llm::SampledToken& token) {
  host_logits_.resize(limits_.vocab_size);
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpy(host_logits_.data(),
                                         decoder_->logits() + int64_t{row} * limits_.vocab_size,
                                         int64_t{limits_.vocab_size} * 4, cudaMemcpyDeviceToHost));
  token = sampler_.Sample(host_logits_, sequence.sampling);
  return {};
}

Result<std::vector<float>> GpuExecutor::ReadLogits() {
  int32_t rows = 0;
  for (const llm::BatchSequence& sequence : submitted_) rows += sequence.num_logits;
  std::vector<float> logits(int64_t{rows} * limits_.vocab_size);
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaMemcpy(logits.data(), decoder_->logits(), logits.size() * 4, cudaMemcpyDeviceToHost));
  return logits;
}

}  // namespace nereid::gpu
