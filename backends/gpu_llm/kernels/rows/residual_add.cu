// Grid: one block of threads for each row, which stays in registers between the passes: the
// product's sum of squares, the addition, and the norm of the new residual. Bound by memory
// bandwidth, in decode steps by the latency of the loads: weights are loaded while the product
// ends. 8,192 rows of 4,096: 60 % of an H200's 4.65 TB/s.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/rows/norm.h"
#include "backends/gpu_llm/kernels/rows/row_weights.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kThreads = 512;
constexpr int kFewChunks = 2, kMaxChunks = 4;  // of 8 values a thread

template <int kChunks>
__global__ void __launch_bounds__(kThreads) ResidualAddKernel(ResidualAddParams p) {
  __shared__ float product_sums[32], residual_sums[32];
  LaunchNext();
  const int64_t row = blockIdx.x;
  const uint4* in = reinterpret_cast<const uint4*>(p.in + row * p.hidden_size);
  uint4* residual = reinterpret_cast<uint4*>(p.residual + row * p.hidden_size);
  const int chunks = p.hidden_size / 8;
  const RowWeights<kChunks> bias(p.bias, p.hidden_size), weight(p.norm_weight, p.hidden_size),
      next_weight(p.next_weight, p.hidden_size);
  WaitForPrevious();
  float values[kChunks][8];
  uint4 before[kChunks];
  float sum = 0.0f, square = 0.0f;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int i = threadIdx.x + c * blockDim.x;
    if (i >= chunks) break;
    before[c] = residual[i];
    Unpack8(in[i], values[c]);
    float biases[8];
    bias.Unpack(c, biases);
#pragma unroll
    for (int j = 0; j < 8; ++j) values[c][j] += biases[j];
#pragma unroll
    for (const float value : values[c]) sum += value * value;
  }
  float scale = 1.0f;
  if (p.norm_weight != nullptr) {
    scale = rsqrtf(BlockSum(sum, product_sums) / static_cast<float>(p.hidden_size) + p.epsilon);
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int i = threadIdx.x + c * blockDim.x;
    if (i >= chunks) break;
    float added[8];
    Unpack8(before[c], added);
    float weights[8] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f};
    if (p.norm_weight != nullptr) weight.Unpack(c, weights);
#pragma unroll
    for (int j = 0; j < 8; ++j) added[j] += values[c][j] * scale * weights[j];
    const uint4 packed = Pack8(added);
    residual[i] = packed;
    Unpack8(packed, values[c]);  // the norm that follows sees the residual as it is stored
#pragma unroll
    for (const float value : values[c]) square += value * value;
  }
  if (p.next_weight == nullptr) return;
  const float next_scale =
      rsqrtf(BlockSum(square, residual_sums) / static_cast<float>(p.hidden_size) + p.epsilon);
  uint4* normed = reinterpret_cast<uint4*>(p.normed + row * p.hidden_size);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int i = threadIdx.x + c * blockDim.x;
    if (i >= chunks) break;
    float weights[8];
    next_weight.Unpack(c, weights);
#pragma unroll
    for (int j = 0; j < 8; ++j) values[c][j] *= next_scale * weights[j];
    normed[i] = Pack8(values[c]);
  }
}

}  // namespace

void ResidualAdd(const ResidualAddParams& params, cudaStream_t stream) {
  const int chunks = params.hidden_size / 8;
  const int threads = chunks >= kThreads ? kThreads : (chunks + 31) / 32 * 32;
  Launch(chunks <= kFewChunks * kThreads ? ResidualAddKernel<kFewChunks>
                                         : ResidualAddKernel<kMaxChunks>,
         params.num_rows, threads, 0, stream, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
