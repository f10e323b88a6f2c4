// One block of threads a row. The row is read twice, the second time from the caches: first for its
// greatest value, then to be rounded.
// 8,192 rows of 4,096: 63 % of an H200's 4.65 TB/s.
#include <cuda_fp8.h>

#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/products/quantize_rows.h"

namespace nereid::gpu {
namespace {

constexpr int kThreads = 512;
constexpr float kGreatest = 448.0f;  // of e4m3
constexpr float kLeast = 1e-12f;     // a row of zeros has a factor too

// Eight values; normed ones before the factor that all of the row share.
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
  float greatest = 0.0f;
#pragma unroll
  for (int warp = 0; warp < kThreads / 32; ++warp) greatest = fmaxf(greatest, scratch[warp]);
  return greatest;
}

template <bool kNorms>
__global__ void __launch_bounds__(kThreads) QuantizeRowsKernel(QuantizeRowsParams p) {
  __shared__ float sums[32], greatest_of[32];
  LaunchNext();
  WaitForPrevious();
  const int64_t from_row =
      p.rows != nullptr ? p.rows[blockIdx.x] : static_cast<int64_t>(blockIdx.x);
  const uint4* in = reinterpret_cast<const uint4*>(p.in + from_row * p.depth);
  const uint4* norm_weight = reinterpret_cast<const uint4*>(p.norm_weight);
  float greatest = 0.0f, squares = 0.0f, values[8];
#pragma unroll 2
  for (int chunk = threadIdx.x; chunk < p.depth / 8; chunk += kThreads) {
    Load<kNorms>(in, norm_weight, chunk, values, squares);
#pragma unroll
    for (int j = 0; j < 8; ++j) greatest = fmaxf(greatest, fabsf(values[j]));
  }
  greatest = fmaxf(BlockMax(greatest, greatest_of), kLeast);
  const float to_fp8 = kGreatest / greatest;
  float factor = greatest / kGreatest;
  if constexpr (kNorms)
    factor *= rsqrtf(BlockSum(squares, sums) / static_cast<float>(p.depth) + p.epsilon);
  if (threadIdx.x == 0) p.factors[blockIdx.x] = factor;
  uint2* out = reinterpret_cast<uint2*>(p.out + int64_t{blockIdx.x} * p.depth);
#pragma unroll 2
  for (int chunk = threadIdx.x; chunk < p.depth / 8; chunk += kThreads) {
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

}  // namespace

void QuantizeRows(const QuantizeRowsParams& params, cudaStream_t stream) {
  Launch(params.norm_weight != nullptr ? QuantizeRowsKernel<true> : QuantizeRowsKernel<false>,
         params.num_rows, kThreads, 0, stream, params);
}

}  // namespace nereid::gpu
