// The RMS norm of rows, each by a block of threads, which keep the row in registers between the two
// passes. Device code, and the choice of the kernel by the length of a row.
#pragma once

#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/rows/row_weights.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::rms_row {

// So few that a block of a following GEMM fits beside a block of these kernels (split_gemm.cuh).
constexpr int kThreads = 256;
constexpr int kFewChunks = 2, kMaxChunks = 8;  // of 8 values a thread

// Norms the block's row. `read(i)` returns eight values, the i-th of the row; `write(i, values,
// normed)` gets them again with their normed ones.
template <int kChunks, typename Weights, typename Read, typename Write>
__device__ __forceinline__ void NormRow(int hidden_size, const Weights& weight, float epsilon,
                                        const Read& read, const Write& write) {
  __shared__ float scratch[32];
  const int chunks = hidden_size / 8;
  uint4 packed[kChunks];
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int i = threadIdx.x + c * blockDim.x;
    if (i >= chunks) break;
    packed[c] = read(i);
    float values[8];
    Unpack8(packed[c], values);
#pragma unroll
    for (const float value : values) sum += value * value;
  }
  const float scale = rsqrtf(BlockSum(sum, scratch) / static_cast<float>(hidden_size) + epsilon);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int i = threadIdx.x + c * blockDim.x;
    if (i >= chunks) break;
    float values[8], weights[8];
    Unpack8(packed[c], values);
    weight.Unpack(c, weights);
#pragma unroll
    for (int j = 0; j < 8; ++j) values[j] *= scale * weights[j];
    write(i, packed[c], Pack8(values));
  }
}

// `few` and `most`: the kernel for kFewChunks and kMaxChunks.
template <typename Params>
void LaunchRows(void (*few)(Params), void (*most)(Params), dim3 grid, const Params& params,
                cudaStream_t stream) {
  const int chunks = params.hidden_size / 8;
  const int threads = chunks >= kThreads ? kThreads : (chunks + 31) / 32 * 32;
  Launch(chunks <= kFewChunks * kThreads ? few : most, grid, threads, 0, stream, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::rms_row
