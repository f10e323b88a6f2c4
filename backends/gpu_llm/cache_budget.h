// How many KV blocks a GPU's memory has room for, or the arithmetic of why not. No CUDA here.
#pragma once

#include <cstdint>

#include "nereid/status.h"

namespace nereid::gpu {

struct CacheBudget {
  int32_t device = 0;
  int64_t free_bytes = 0, total_bytes = 0;  // of the GPU, with the weights loaded
  int64_t weight_bytes = 0;
  int64_t block_bytes = 0;       // of a KV block, all layers
  double memory_fraction = 0.9;  // of what is free
  int64_t max_tokens = 0;        // wanted; 0: as the fraction says
  int64_t most_blocks = 0;       // more are never used
};

// UNAVAILABLE: what is wanted, or a single block, does not fit.
Result<int64_t> CountCacheBlocks(const CacheBudget& budget);

// Blocks that hold so many tokens.
int64_t BlocksFor(int64_t tokens);

}  // namespace nereid::gpu
