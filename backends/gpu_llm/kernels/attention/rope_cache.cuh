// Shared by the parts of rope.cu: the address of a row's head in the cache, and the scale of a
// quantized key or value. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/cache_quantization.cuh"
#include "backends/gpu_llm/kernels/attention/rope.h"
#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::rope {

__device__ __forceinline__ int RowHeads(const RopeWriteParams& p) {
  return p.num_heads + 2 * p.num_kv_heads;
}

template <int kHeadDim>
__device__ __forceinline__ char* HeadOf(const RopeWriteParams& p, int slot, int kv_head) {
  return static_cast<char*>(p.cache) +
         (int64_t{slot / kBlockTokens} * p.num_kv_heads + kv_head) * HeadBytes(kHeadDim, p.format);
}

// Returns the inverse of a key's or value's scale. `max_magnitude`: its maximum magnitude.
// `writes`: this thread also stores the scale in the cache.
template <int kHeadDim, bool kIsKey>
__device__ __forceinline__ float WriteScale(const RopeWriteParams& p, int slot, int kv_head,
                                            float max_magnitude, bool writes) {
  const float scale = max_magnitude / MaxCode(p.format);
  if (writes) {
    char* scales = HeadOf<kHeadDim>(p, slot, kv_head) + QuantizedScalesOffset(kHeadDim);
    reinterpret_cast<float*>(scales)[slot % kBlockTokens + (kIsKey ? 0 : kBlockTokens)] = scale;
  }
  return scale > 0.0f ? 1.0f / scale : 0.0f;
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::rope
