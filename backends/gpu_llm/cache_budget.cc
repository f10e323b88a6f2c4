// Blocks by bytes.
#include "backends/gpu_llm/cache_budget.h"

#include <algorithm>

#include "backends/gpu_llm/kernels/attention/cache_layout.h"

namespace nereid::gpu {

int64_t BlocksFor(int64_t tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

Result<int64_t> CountCacheBlocks(const CacheBudget& budget) {
  int64_t blocks =
      static_cast<int64_t>(static_cast<double>(budget.free_bytes) * budget.memory_fraction) /
      budget.block_bytes;
  if (budget.max_tokens > 0) {
    blocks = BlocksFor(budget.max_tokens);
    if (blocks > budget.free_bytes / budget.block_bytes) {
      return UnavailableError("max_tokens_in_paged_kv_cache ", budget.max_tokens, " needs ", blocks,
                              " blocks x ", budget.block_bytes,
                              " bytes = ", blocks * budget.block_bytes, "; GPU ", budget.device,
                              " has ", budget.free_bytes, " of ", budget.total_bytes,
                              " bytes free beside ", budget.weight_bytes, " of weights");
    }
  }
  blocks = std::min(blocks, budget.most_blocks);
  if (blocks < 1) {
    return UnavailableError("kv_cache_free_gpu_mem_fraction ", budget.memory_fraction, " of ",
                            budget.free_bytes, " free bytes is less than one KV block of ",
                            budget.block_bytes, " bytes; GPU ", budget.device, " has ",
                            budget.total_bytes, " bytes, the weights take ", budget.weight_bytes);
  }
  return blocks;
}

}  // namespace nereid::gpu
