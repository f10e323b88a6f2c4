// Causal attention of prompt chunks over their paged contexts, which already hold the chunk itself.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/step_plan.h"

namespace nereid::gpu {

struct PrefillAttentionParams {
  const __nv_bfloat16* qkv;  // [.., qkv_stride]: queries first
  __nv_bfloat16* out;        // [.., num_heads * head_dim]
  const void* cache;         // this layer's blocks
  const PrefillTile* tiles;  // [num_tiles]
  const int32_t* words;      // the step's array: block tables lie in it
  int num_tiles, num_heads, num_kv_heads, head_dim, qkv_stride;
  int window;             // 0: all of the context
  float scale, soft_cap;  // soft_cap 0: none
  CacheFormat format;
  int num_processors;  // of the device, each of which takes several tiles; 0: one a block of
                       // threads
};

void PrefillAttention(const PrefillAttentionParams& params, cudaStream_t stream);

}  // namespace nereid::gpu
