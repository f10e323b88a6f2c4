// What the parts of rope.cu share: where a head of a row lies in the cache, and the factor of one
// that is kept in bytes. Device code alone.
#pragma once

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/rope.h"
#include "backends/gpu_llm/kernels/device/byte_format.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu::rope {

__device__ __forceinline__ int RowHeads(const RopeWriteParams& p) {
  return p.num_heads + 2 * p.num_kv_heads;
}

template <int kHeadDim>
__device__ __forceinline__ char* HeadOf(const RopeWriteParams& p, int slot, int kv_head) {
  return static_cast<char*>(p.cache) +
         (int64_t{slot / kBlockTokens} * p.num_kv_heads + kv_head) * HeadBytes(kHeadDim, p.format);
}

// A key's or value's factor, known to all who hold a part of it; `greatest`: its greatest
// magnitude.
template <int kHeadDim, bool kIsKey>
__device__ __forceinline__ float WriteFactor(const RopeWriteParams& p, int slot, int kv_head,
                                             float greatest, bool writes) {
  const float factor = greatest / GreatestCode(p.format);
  if (writes) {
    char* factors = HeadOf<kHeadDim>(p, slot, kv_head) + ByteScalesOffset(kHeadDim);
    reinterpret_cast<float*>(factors)[slot % kBlockTokens + (kIsKey ? 0 : kBlockTokens)] = factor;
  }
  return factor > 0.0f ? 1.0f / factor : 0.0f;
}

}  // namespace nereid::gpu::rope
