// Grid: one block of threads for each row, which stays in registers between the two passes. Bound
// by memory bandwidth. 8,192 rows of 4,096: 84 % of an H200's 4.65 TB/s.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/rows/norm.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

// So few that a block of a following GEMM fits beside a block of this kernel (split_gemm.cuh).
constexpr int kThreads = 256;
constexpr int kFewChunks = 2, kMaxChunks = 8;  // of 8 values a thread

template <int kChunks>
__global__ void __launch_bounds__(kThreads) RmsNormKernel(RmsNormParams p) {
  __shared__ float scratch[32];
  LaunchNext();
  WaitForPrevious();
  const int64_t from_row =
      p.rows != nullptr ? p.rows[blockIdx.x] : static_cast<int64_t>(blockIdx.x);
  const uint4* in = reinterpret_cast<const uint4*>(p.in + from_row * p.hidden_size);
  const uint4* weight = reinterpret_cast<const uint4*>(p.weight);
  uint4* out = reinterpret_cast<uint4*>(p.out + int64_t{blockIdx.x} * p.hidden_size);
  const int chunks = p.hidden_size / 8;
  uint4 packed[kChunks];
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int i = threadIdx.x + c * blockDim.x;
    if (i >= chunks) break;
    packed[c] = in[i];
    float values[8];
    Unpack8(packed[c], values);
#pragma unroll
    for (const float value : values) sum += value * value;
  }
  const float scale =
      rsqrtf(BlockSum(sum, scratch) / static_cast<float>(p.hidden_size) + p.epsilon);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int i = threadIdx.x + c * blockDim.x;
    if (i >= chunks) break;
    float values[8], weights[8];
    Unpack8(packed[c], values);
    Unpack8(weight[i], weights);
#pragma unroll
    for (int j = 0; j < 8; ++j) values[j] *= scale * weights[j];
    out[i] = Pack8(values);
  }
}

}  // namespace

void RmsNorm(const RmsNormParams& params, cudaStream_t stream) {
  const int threads =
      params.hidden_size / 8 >= kThreads ? kThreads : (params.hidden_size / 8 + 31) / 32 * 32;
  Launch(params.hidden_size / 8 <= kFewChunks * kThreads ? RmsNormKernel<kFewChunks>
                                                         : RmsNormKernel<kMaxChunks>,
         params.num_rows, threads, 0, stream, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
