// Attention of single new tokens over their paged contexts. Query heads of one key/value head are
// packed into the rows of a matrix product; long contexts are split over blocks of threads
// (DecodeItem), of which the last one to end adds up the parts, always in the same order.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/step_plan.h"

namespace nereid::gpu {

struct DecodeAttentionParams {
  const __nv_bfloat16* qkv;  // [.., qkv_stride]: queries first
  __nv_bfloat16* out;        // [.., num_heads * head_dim]
  const void* cache;         // this layer's blocks
  const DecodeItem* items;   // [num_items]
  const int32_t* words;      // the step's array: block tables lie in it
  float* partials;           // [num_items, num_heads, head_dim + 2]: of contexts that are split
  int32_t* tickets;          // [sequences, num_heads], zero before and after
  int num_items, num_heads, num_kv_heads, head_dim, qkv_stride;
  int window;             // 0: all of the context
  float scale, soft_cap;  // soft_cap 0: none
  CacheFormat format;
};

void DecodeAttention(const DecodeAttentionParams& params, cudaStream_t stream);
// Of a cache in one byte an element.
void DecodeAttentionBytes(const DecodeAttentionParams& params, cudaStream_t stream);

}  // namespace nereid::gpu
