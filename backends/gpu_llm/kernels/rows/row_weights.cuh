// The weights or biases of a row's columns, in registers of the block of threads that handles the
// row. No kernel writes them, so they are loaded while the previous kernel ends. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

// Chunk c of a thread has the eight values from 8 (threadIdx.x + c blockDim.x) on.
template <int kChunks>
class RowWeights {
 public:
  // Before WaitForPrevious(). `weights`: null: none.
  __device__ __forceinline__ RowWeights(const bf16* weights, int size) {
    if (weights == nullptr) return;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int i = threadIdx.x + c * blockDim.x;
      if (i < size / 8) packed_[c] = reinterpret_cast<const uint4*>(weights)[i];
    }
  }
  __device__ __forceinline__ void Unpack(int c, float (&values)[8]) const {
    Unpack8(packed_[c], values);
  }

 private:
  uint4 packed_[kChunks] = {};
};

// The same, loaded where they are used, for kernels that need the registers.
class LateRowWeights {
 public:
  __device__ __forceinline__ explicit LateRowWeights(const bf16* weights)
      : weights_(reinterpret_cast<const uint4*>(weights)) {}
  __device__ __forceinline__ void Unpack(int c, float (&values)[8]) const {
    Unpack8(weights_[threadIdx.x + c * blockDim.x], values);
  }

 private:
  const uint4* weights_;
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
