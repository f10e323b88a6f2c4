// How lanes read the keys and values of a KV block in shared memory as operands of mma. Device code
// only.
#pragma once

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/operand_loads.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

// The four sums of product `at` among those of a thread.
template <int kCount>
__device__ __forceinline__ float (&Sums(float (&all)[kCount], int at))[4] {
  return *reinterpret_cast<float(*)[4]>(&all[4 * at]);
}

// A matrix load has 16 tokens of 16 columns. A lane's byte offsets in a KV block: of the keys of
// the first 16 tokens, for each 16 columns of a panel; of the values of the first 16 columns, for
// each 16 tokens.
template <int kHeadDim>
struct LaneOffsets {
  static constexpr int kPanelColumns = KeyPanelColumns(kHeadDim);
  uint32_t keys[kPanelColumns / 16], values[kBlockTokens / 16];

  __device__ __forceinline__ LaneOffsets() {
    const int lane = threadIdx.x % 32;
    const int row = lane / 16 * 8 + lane % 8, column = lane / 8 % 2 * 8;
#pragma unroll
    for (int s = 0; s < kPanelColumns / 16; ++s)
      keys[s] = KeyOffset<kHeadDim>(row, 16 * s + column);
#pragma unroll
    for (int s = 0; s < kBlockTokens / 16; ++s)
      values[s] =
          static_cast<uint32_t>(TileBytes(kHeadDim)) + ValueOffset<kHeadDim>(16 * s + column, row);
  }
  // Of 16 columns from 16 s on, and of 16 tokens from 16 n on.
  __device__ __forceinline__ uint32_t Keys(int s, int n) const {
    constexpr int kSteps = kPanelColumns / 16, kRowBytes = 2 * kPanelColumns;
    return keys[s % kSteps] + s / kSteps * kBlockTokens * kRowBytes + n * 16 * kRowBytes;
  }
  // Of 16 tokens from 16 s on, and of 16 columns from 16 n on.
  __device__ __forceinline__ uint32_t Values(int s, int n) const {
    return values[s] + n * 16 * (kBlockTokens * 2);
  }
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
