// QuantizeRows: one block of threads for each row, which is read twice, the second time from the
// caches: first for its maximum, then to be rounded. 8,192 rows of 4,096: 63 % of an H200's 4.65
// TB/s. GatherColumns: one value a thread. Either there are few rows, or the following GEMM
// dominates. 8,192 rows of 4,096: 39 %.
#include <cuda_fp8.h>

#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/gemm/gemm_input.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kGatherThreads = 256, kQuantizeThreads = 512;
constexpr float kMaxE4m3 = 448.0f;       // maximum of e4m3
constexpr float kMinMagnitude = 1e-12f;  // gives rows of zeros a scale as well

// Loads eight values. With a norm they are multiplied by its weights, without the row's scale.
template <bool kNorms>
__device__ __forceinline__ void Load(const uint4* in, const uint4* norm_weight, int chunk,
                                     float (&values)[8], float& squares) {
  Unpack8(in[chunk], values);
  if constexpr (kNorms) {
    float weights[8];
    Unpack8(norm_weight[chunk], weights);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      squares += values[j] * values[j];
      values[j] *= weights[j];
    }
  }
}

__device__ __forceinline__ float BlockMax(float value, float* scratch) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, lane));
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  float max_magnitude = 0.0f;
#pragma unroll
  for (int warp = 0; warp < kQuantizeThreads / 32; ++warp)
    max_magnitude = fmaxf(max_magnitude, scratch[warp]);
  return max_magnitude;
}

template <bool kNorms>
__global__ void __launch_bounds__(kQuantizeThreads) QuantizeRowsKernel(QuantizeRowsParams p) {
  __shared__ float sums[32], max_scratch[32];
  LaunchNext();
  WaitForPrevious();
  const int64_t from_row =
      p.rows != nullptr ? p.rows[blockIdx.x] : static_cast<int64_t>(blockIdx.x);
  const uint4* in = reinterpret_cast<const uint4*>(p.in + from_row * p.depth);
  const uint4* norm_weight = reinterpret_cast<const uint4*>(p.norm_weight);
  float max_magnitude = 0.0f, squares = 0.0f, values[8];
#pragma unroll 2
  for (int chunk = threadIdx.x; chunk < p.depth / 8; chunk += kQuantizeThreads) {
    Load<kNorms>(in, norm_weight, chunk, values, squares);
#pragma unroll
    for (int j = 0; j < 8; ++j) max_magnitude = fmaxf(max_magnitude, fabsf(values[j]));
  }
  max_magnitude = fmaxf(BlockMax(max_magnitude, max_scratch), kMinMagnitude);
  const float to_fp8 = kMaxE4m3 / max_magnitude;
  float scale = max_magnitude / kMaxE4m3;
  if constexpr (kNorms)
    scale *= rsqrtf(BlockSum(squares, sums) / static_cast<float>(p.depth) + p.epsilon);
  if (threadIdx.x == 0) p.scales[blockIdx.x] = scale;
  uint2* out = reinterpret_cast<uint2*>(p.out + int64_t{blockIdx.x} * p.depth);
#pragma unroll 2
  for (int chunk = threadIdx.x; chunk < p.depth / 8; chunk += kQuantizeThreads) {
    Load<kNorms>(in, norm_weight, chunk, values, squares);
    uint32_t pairs[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      pairs[j] = __nv_cvt_float2_to_fp8x2({values[2 * j] * to_fp8, values[2 * j + 1] * to_fp8},
                                          __NV_SATFINITE, __NV_E4M3);
    }
    out[chunk] = {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
  }
}

// One value a thread.
__global__ void __launch_bounds__(kGatherThreads) GatherColumnsKernel(GatherColumnsParams p) {
  LaunchNext();
  WaitForPrevious();
  const int column = static_cast<int>(blockIdx.x) * kGatherThreads + threadIdx.x;
  if (column >= p.depth) return;
  const int from_column = p.order != nullptr ? p.order[column] : column;
  const float scale = p.scale != nullptr ? p.scale[from_column] : 1.0f;
  for (int64_t row = blockIdx.y; row < p.num_rows; row += gridDim.y) {
    const int64_t from_row = p.rows != nullptr ? p.rows[row] : row;
    p.out[row * p.depth + column] =
        __float2bfloat16(__bfloat162float(p.in[from_row * p.depth + from_column]) * scale);
  }
}

}  // namespace

void GatherColumns(const GatherColumnsParams& params, cudaStream_t stream) {
  const dim3 grid((params.depth + kGatherThreads - 1) / kGatherThreads,
                  params.num_rows < 1024 ? params.num_rows : 1024);
  Launch(GatherColumnsKernel, grid, kGatherThreads, 0, stream, params);
}

void QuantizeRows(const QuantizeRowsParams& params, cudaStream_t stream) {
  Launch(params.norm_weight != nullptr ? QuantizeRowsKernel<true> : QuantizeRowsKernel<false>,
         params.num_rows, kQuantizeThreads, 0, stream, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
