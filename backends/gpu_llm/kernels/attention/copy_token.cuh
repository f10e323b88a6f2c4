// Copies the key and the value of a token from one place of the KV cache to another, as they are
// stored. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

// `to` and `from`: a head of a block, in shared or global memory. Threads `thread` of `num_threads`
// share the work and synchronise afterwards.
template <int kHeadDim, bool kIsQuantized>
__device__ __forceinline__ void CopyToken(char* to, int to_token, const char* from, int from_token,
                                          int thread, int num_threads) {
  if constexpr (kIsQuantized) {
    constexpr int kChunks = kHeadDim / 16;
    const int values = static_cast<int>(QuantizedTileBytes(kHeadDim));
    for (int i = thread; i < 2 * kChunks; i += num_threads) {
      const bool is_key = i < kChunks;
      const int column = i % kChunks * 16;
      const auto offset = [&](int token) {
        return is_key ? QuantizedKeyOffset<kHeadDim>(token, column)
                      : values + QuantizedValueOffset<kHeadDim>(token, column);
      };
      *reinterpret_cast<uint4*>(to + offset(to_token)) =
          *reinterpret_cast<const uint4*>(from + offset(from_token));
    }
    if (thread < 2) {  // the scale of the key, and that of the value
      const int scales =
          static_cast<int>(QuantizedScalesOffset(kHeadDim)) + thread * kBlockTokens * 4;
      *reinterpret_cast<float*>(to + scales + to_token * 4) =
          *reinterpret_cast<const float*>(from + scales + from_token * 4);
    }
  } else {
    for (int i = thread; i < kHeadDim / 8; i += num_threads) {
      *reinterpret_cast<uint4*>(to + KeyOffset<kHeadDim>(to_token, 8 * i)) =
          *reinterpret_cast<const uint4*>(from + KeyOffset<kHeadDim>(from_token, 8 * i));
    }
    const int values = static_cast<int>(TileBytes(kHeadDim));
    for (int i = thread; i < kHeadDim; i += num_threads) {
      *reinterpret_cast<uint16_t*>(to + values + ValueOffset<kHeadDim>(to_token, i)) =
          *reinterpret_cast<const uint16_t*>(from + values + ValueOffset<kHeadDim>(from_token, i));
    }
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
