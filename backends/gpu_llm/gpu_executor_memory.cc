// The part of GpuExecutor that reserves GPU memory for LoRA adapters and for the KV cache with its
// tiers, after weights and buffers have theirs. [engine thread]
#include <algorithm>

#include "backends/gpu_llm/cache_budget.h"
#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/gpu_executor.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"

namespace nereid::gpu {

Status GpuExecutor::MakeAdapters(int32_t max_num_rows) {
  DeviceAdaptersOptions options;
  options.memory_bytes = options_.adapter_memory_bytes;
  if (options.memory_bytes == 0) {
    size_t free_bytes = 0, total_bytes = 0;
    NEREID_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_bytes, &total_bytes));
    options.memory_bytes =
        static_cast<int64_t>(static_cast<double>(free_bytes) * options_.adapter_memory_fraction);
  }
  if (options_.group != nullptr) {
    NEREID_ASSIGN_OR_RETURN(options.memory_bytes, options_.group->WaitForAll(options.memory_bytes));
  }
  options.memory_bytes -= options.memory_bytes % AdapterSlots::kAlign;
  if (options.memory_bytes == 0) return {};
  options.sharding = sharding_;
  options.max_rank = options_.max_adapter_rank;
  // Never fewer than sequences, so that only the memory limits how many adapters a step has.
  options.num_slots = std::max(1024, limits_.max_num_sequences);
  options.max_num_rows = max_num_rows;
  NEREID_ASSIGN_OR_RETURN(adapters_, DeviceAdapters::Create(model_.spec, options));
  NEREID_RETURN_IF_ERROR(decoder_->SetAdapters(adapters_.get()));
  limits_.adapter_bytes = options.memory_bytes;
  return {};
}

// After an error of the call the adapter counts as ready, and the step that needs it has the error.
bool GpuExecutor::PrepareAdapter(const std::shared_ptr<const llm::LoraAdapter>& adapter) {
  if (adapters_ == nullptr) return true;
  const Result<bool> is_ready = adapters_->Prepare(adapter, num_submitted_, num_collected_);
  return !is_ready.ok() || *is_ready;
}

Result<std::vector<llm::FailedAdapter>> GpuExecutor::LoadAdapters(
    std::span<const std::shared_ptr<const llm::LoraAdapter>> adapters) {
  NEREID_ASSIGN_OR_RETURN(std::vector<llm::FailedAdapter> failed, CopyAdapters(adapters));
  ForgetAdapters(failed);
  return failed;
}

Result<std::vector<llm::FailedAdapter>> GpuExecutor::CopyAdapters(
    std::span<const std::shared_ptr<const llm::LoraAdapter>> adapters) {
  if (adapters_ == nullptr)
    return InternalError("a step has LoRA adapters, but there is no memory");
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  std::optional<DeviceAdapters::RunningStep> running;
  if (num_submitted_ > num_collected_)
    running = {num_submitted_ - 1, in_flight_[(num_submitted_ - 1) % 2].done.get()};
  NEREID_ASSIGN_OR_RETURN(
      std::vector<llm::FailedAdapter> failed,
      adapters_->Load(adapters, num_submitted_, running ? &*running : nullptr, stream_.get()));
  if (adapters_->groups() != adapter_groups_) {  // the recorded steps miss a product
    adapter_groups_ = adapters_->groups();
    graphs_.ForgetAdapters();
  }
  return failed;
}

void GpuExecutor::ForgetAdapters(std::span<const llm::FailedAdapter> failed) {
  for (const llm::FailedAdapter& each : failed) adapters_->Forget(*each.adapter);
}

Result<std::span<const int32_t>> GpuExecutor::AdapterSlotsOf(const llm::StepBatch& batch) {
  if (batch.adapters.empty()) return std::span<const int32_t>();
  NEREID_ASSIGN_OR_RETURN(const std::vector<llm::FailedAdapter> failed,
                          LoadAdapters(batch.adapters));
  if (!failed.empty()) return failed.front().error;
  return adapters_->slots();
}

Status GpuExecutor::SizeCache() {
  size_t free_bytes = 0, total_bytes = 0;
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_bytes, &total_bytes));
  CacheBudget budget;
  budget.device = options_.device;
  budget.free_bytes = std::max<int64_t>(
      0, static_cast<int64_t>(free_bytes) - options_.companion_memory.fixed_bytes);
  budget.total_bytes = static_cast<int64_t>(total_bytes);
  budget.weight_bytes = static_cast<int64_t>(weights_.memory.size_bytes());
  budget.block_bytes = Decoder::CacheBlockBytes(model_.spec, options_.cache_format) +
                       options_.companion_memory.block_bytes;
  budget.memory_fraction = options_.cache_memory_fraction;
  budget.is_fraction_requested = options_.is_cache_fraction_requested;
  budget.max_tokens = options_.max_cache_tokens;
  budget.sequence_blocks = int64_t{limits_.max_num_sequences} * BlocksFor(limits_.max_positions);
  budget.caches_prefixes = options_.caches_prefixes;
  NEREID_ASSIGN_OR_RETURN(int64_t blocks, CountCacheBlocks(budget));
  if (options_.max_cache_blocks > 0) blocks = std::min(blocks, options_.max_cache_blocks);
  if (options_.group != nullptr) {
    NEREID_ASSIGN_OR_RETURN(blocks, options_.group->WaitForAll(blocks));
  }
  limits_.num_blocks = static_cast<int32_t>(std::min<int64_t>(blocks, INT32_MAX / kBlockTokens));
  NEREID_RETURN_IF_ERROR(decoder_->AllocateCache(limits_.num_blocks));
  return options_.tiers.is_enabled() ? OpenTiers() : Status();
}

// The bytes of the same tokens also depend on the GPU and on the kernels.
Status GpuExecutor::OpenTiers() {
  const CacheBlocks blocks = decoder_->cache_blocks();
  std::unique_ptr<llm::BlockFile> file;
  if (!options_.tiers.file_path.empty()) {
    cudaDeviceProp gpu = {};
    NEREID_RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&gpu, options_.device));
    const std::string format =
        StrCat("gpu ", gpu.name, " ", gpu.major, ".", gpu.minor, " form ", static_cast<int>(form_),
               " kv ", static_cast<int>(options_.cache_format), " positions ",
               limits_.max_positions, " invariant ", options_.is_batch_invariant ? 1 : 0, " dummy ",
               options_.dummy ? StrCat(options_.dummy->seed) : std::string("no"), " shard ",
               sharding_.rank(), " of ", sharding_.count());
    if (options_.checkpoint == nullptr)
      return InternalError("a file of KV blocks needs the checkpoint that it belongs to");
    NEREID_ASSIGN_OR_RETURN(
        file, llm::OpenBlockFile(options_.tiers, kBlockTokens, blocks.block_bytes(),
                                 llm::CacheIdentity(*options_.checkpoint, model_.spec, format)));
  }
  NEREID_ASSIGN_OR_RETURN(storage_,
                          GpuBlockStorage::Create(blocks, options_.device, stream_.get(),
                                                  options_.tiers.host_bytes, std::move(file)));
  return {};
}

llm::ExecutorMemory GpuExecutor::memory() const {
  llm::ExecutorMemory memory;
  memory.gpu_bytes = static_cast<int64_t>(weights_.memory.size_bytes() + upload_.device_bytes() +
                                          sampler_->device_bytes()) +
                     decoder_->memory_bytes();
  memory.pinned_bytes = static_cast<int64_t>(sampler_->pinned_bytes() + upload_.pinned_bytes());
  if (weights_.stream != nullptr) memory.pinned_bytes += weights_.stream->pinned_bytes();
  if (adapters_ != nullptr) {
    memory.gpu_bytes += adapters_->memory_bytes();
    memory.pinned_bytes += adapters_->pinned_bytes();
  }
  if (storage_ != nullptr) memory.pinned_bytes += storage_->pinned_bytes();
  return memory;
}

}  // namespace nereid::gpu
