// Grid: two blocks of threads for each row, one for each half of the input. A half stays in
// registers between the two passes of its norm.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/rows/head_input.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kThreads = 256;
constexpr int kFewChunks = 2, kMaxChunks = 8;  // of 8 values a thread

// The source of the half. `scale` is that of its values.
__device__ __forceinline__ const uint4* HalfOf(const HeadInputParams& p, int row, bool is_hidden,
                                               float& scale) {
  scale = 1.0f;
  if (is_hidden) {
    const int from = p.hidden == nullptr ? -1 : p.hidden_rows[row];
    return reinterpret_cast<const uint4*>(from < 0 ? p.residual + int64_t{row} * p.hidden_size
                                                   : p.hidden + int64_t{from} * p.hidden_size);
  }
  scale = p.scale;
  int id = p.ids[row];
  if (id < 0) {
    id = p.last_tokens[-1 - id];
    if (p.target_ids != nullptr) id = p.target_ids[id];
  }
  return reinterpret_cast<const uint4*>(p.table + int64_t{id} * p.hidden_size);
}

template <int kChunks>
__global__ void __launch_bounds__(kThreads) HeadInputKernel(HeadInputParams p) {
  __shared__ float scratch[32];
  LaunchNext();
  WaitForPrevious();
  const int row = static_cast<int>(blockIdx.x);
  const bool is_hidden = blockIdx.y == 1;
  float value_scale = 1.0f;
  const uint4* in = HalfOf(p, row, is_hidden, value_scale);
  const auto* weight = reinterpret_cast<const uint4*>(is_hidden ? p.hidden_norm : p.embedding_norm);
  auto* out =
      reinterpret_cast<uint4*>(p.out + (int64_t{2} * row + (is_hidden ? 1 : 0)) * p.hidden_size);
  auto* residual = reinterpret_cast<uint4*>(p.residual + int64_t{row} * p.hidden_size);
  const int chunks = p.hidden_size / 8;
  uint4 packed[kChunks];
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int i = threadIdx.x + c * blockDim.x;
    if (i >= chunks) break;
    float values[8];
    Unpack8(in[i], values);
#pragma unroll
    for (float& value : values) value *= value_scale;
    packed[c] = Pack8(values);  // a scaled embedding is rounded, as that of the target
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
    const uint4 normed = Pack8(values);
    out[i] = normed;
    if (is_hidden) residual[i] = p.norms_residual ? normed : packed[c];
  }
}

}  // namespace

void HeadInput(const HeadInputParams& params, cudaStream_t stream) {
  const int threads =
      params.hidden_size / 8 >= kThreads ? kThreads : (params.hidden_size / 8 + 31) / 32 * 32;
  Launch(params.hidden_size / 8 <= kFewChunks * kThreads ? HeadInputKernel<kFewChunks>
                                                         : HeadInputKernel<kMaxChunks>,
         dim3(params.num_rows, 2), threads, 0, stream, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
