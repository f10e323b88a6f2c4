// Grid: kArgMaxSplits blocks of threads for each row; the last one to finish combines the partial
// results. Bound by memory bandwidth. 512 rows of 128,256: 61 % of an H200's 4.65 TB/s.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/sampling/sample.h"
#include "backends/gpu_llm/kernels/sampling/sample_target.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kThreads = 512;

__device__ __forceinline__ void Join(PartialArgMax& a, const PartialArgMax& b) {
  const bool b_wins = b.max > a.max || (b.max == a.max && b.id < a.id);
  const float max = b_wins ? b.max : a.max;
  if (max == kNegativeInfinity) {
    a.id = min(a.id, b.id);
    return;
  }
  a.sum = a.sum * __expf(a.max - max) + b.sum * __expf(b.max - max);
  a.max = max;
  a.id = b_wins ? b.id : a.id;
}

__device__ __forceinline__ PartialArgMax WarpJoin(PartialArgMax part) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    Join(part,
         {__shfl_xor_sync(0xffffffffu, part.max, lane), __shfl_xor_sync(0xffffffffu, part.id, lane),
          __shfl_xor_sync(0xffffffffu, part.sum, lane)});
  }
  return part;
}

__global__ void __launch_bounds__(kThreads) ArgMaxKernel(ArgMaxParams p) {
  __shared__ PartialArgMax warps[kThreads / 32];
  LaunchNext();
  WaitForPrevious();
  const int64_t row = blockIdx.y;
  const float4* logits = reinterpret_cast<const float4*>(p.logits + row * p.vocab_size);
  const int count = p.vocab_size / 4;
  const int first = static_cast<int>(int64_t{count} * blockIdx.x / kArgMaxSplits);
  const int last = static_cast<int>(int64_t{count} * (blockIdx.x + 1) / kArgMaxSplits);
  PartialArgMax part = {kNegativeInfinity, INT32_MAX, 0.0f};
  for (int i = first + threadIdx.x; i < last; i += kThreads) {
    const float4 four = logits[i];
    const float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (values[j] > part.max) {
        part.sum = part.sum * __expf(part.max - values[j]) + 1.0f;
        part.max = values[j];
        part.id = 4 * i + j;
      } else if (values[j] != kNegativeInfinity) {
        part.sum += __expf(values[j] - part.max);
      }
    }
  }
  part = WarpJoin(part);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = part;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  part = WarpJoin(threadIdx.x < kThreads / 32 ? warps[threadIdx.x]
                                              : PartialArgMax{kNegativeInfinity, INT32_MAX, 0.0f});
  PartialArgMax* partials = p.partials + row * kArgMaxSplits;
  int ticket = 0;
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = part;
    __threadfence();
    ticket = atomicAdd(p.tickets + row, 1);
  }
  if (__shfl_sync(0xffffffffu, ticket, 0) != kArgMaxSplits - 1) return;
  __threadfence();
  PartialArgMax all = {kNegativeInfinity, INT32_MAX, 0.0f};
  if (threadIdx.x < kArgMaxSplits) {
    const volatile PartialArgMax& from = partials[threadIdx.x];
    all = {from.max, from.id, from.sum};
  }
  all = WarpJoin(all);
  if (threadIdx.x != 0) return;
  p.tickets[row] = 0;
  WriteToken(p.target, static_cast<int>(row), all.id == INT32_MAX ? 0 : all.id, -logf(all.sum));
  p.log_sums[row] = all.max + logf(all.sum);
}

}  // namespace

void ArgMax(const ArgMaxParams& params, cudaStream_t stream) {
  Launch(ArgMaxKernel, dim3(kArgMaxSplits, params.num_rows), kThreads, 0, stream, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
