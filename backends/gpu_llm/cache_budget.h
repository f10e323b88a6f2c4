// Computes how many KV blocks fit in a GPU's memory. The error lists the numbers if none fits. No
// CUDA here.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "nereid/status.h"

namespace nereid::gpu {

struct CacheBudget {
  int32_t device = 0;
  int64_t free_bytes = 0, total_bytes = 0;  // of the GPU, with the weights loaded
  int64_t weight_bytes = 0;
  int64_t block_bytes = 0;             // of a KV block, all layers
  double memory_fraction = 0.9;        // of the free memory
  bool is_fraction_requested = false;  // by the configuration
  int64_t max_tokens = 0;              // requested; 0: determined by memory_fraction
  int64_t sequence_blocks = 0;         // what all sequences can use at the same time
  bool caches_prefixes = false;        // blocks beyond these keep prompts
};

// Number of blocks for `tokens` tokens.
inline int64_t BlocksFor(int64_t tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

// If both a fraction and tokens are requested, the smaller of the two counts. What nobody can use
// is not taken: without a prefix cache, nor by default, are there more blocks than sequences can
// use. UNAVAILABLE if the requested tokens, or a single block, do not fit.
inline Result<int64_t> CountCacheBlocks(const CacheBudget& budget) {
  int64_t blocks =
      static_cast<int64_t>(static_cast<double>(budget.free_bytes) * budget.memory_fraction) /
      budget.block_bytes;
  if (budget.max_tokens > 0) {
    const int64_t needed = BlocksFor(budget.max_tokens);
    if (!budget.is_fraction_requested && needed > budget.free_bytes / budget.block_bytes) {
      return UnavailableError("max_tokens_in_paged_kv_cache ", budget.max_tokens, " needs ", needed,
                              " blocks x ", budget.block_bytes,
                              " bytes = ", needed * budget.block_bytes, "; GPU ", budget.device,
                              " has ", budget.free_bytes, " of ", budget.total_bytes,
                              " bytes free beside ", budget.weight_bytes, " of weights");
    }
    blocks = budget.is_fraction_requested ? std::min(blocks, needed) : needed;
  }
  const bool is_requested = budget.max_tokens > 0 || budget.is_fraction_requested;
  if (!budget.caches_prefixes || !is_requested) blocks = std::min(blocks, budget.sequence_blocks);
  if (blocks < 1) {
    return UnavailableError("kv_cache_free_gpu_mem_fraction ", budget.memory_fraction, " of ",
                            budget.free_bytes, " free bytes is less than one KV block of ",
                            budget.block_bytes, " bytes; GPU ", budget.device, " has ",
                            budget.total_bytes, " bytes, the weights take ", budget.weight_bytes);
  }
  return blocks;
}

}  // namespace nereid::gpu
