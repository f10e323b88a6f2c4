// Grid: one block of threads for each row. Each pass over the row finds the most likely token after
// the previous one, so that no state is kept; all passes but the first read from the L2 cache. Only
// rows whose clients ask for it pay for this.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/sampling/top_tokens.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kThreads = 512;

struct RankedToken {
  float logit;
  int32_t id;
};

__device__ __forceinline__ bool Precedes(const RankedToken& a, const RankedToken& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

__device__ __forceinline__ RankedToken WarpFirst(RankedToken token) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    const RankedToken other = {__shfl_xor_sync(0xffffffffu, token.logit, lane),
                               __shfl_xor_sync(0xffffffffu, token.id, lane)};
    if (Precedes(other, token)) token = other;
  }
  return token;
}

__global__ void __launch_bounds__(kThreads)
    TopTokensKernel(const __grid_constant__ TopTokensParams p) {
  __shared__ RankedToken warps[kThreads / 32];
  __shared__ RankedToken found;
  LaunchNext();
  WaitForPrevious();
  const int row = p.rows[blockIdx.x];
  const float* logits = p.logits + int64_t{row} * p.stride;
  const RankedToken none = {kNegativeInfinity, INT32_MAX};
  RankedToken previous = {-kNegativeInfinity, -1};
  for (int k = 0; k < p.counts[blockIdx.x]; ++k) {
    RankedToken best = none;
    for (int id = threadIdx.x; id < p.vocab_size; id += kThreads) {
      const RankedToken token = {logits[id], id};
      if (Precedes(previous, token) && Precedes(token, best)) best = token;
    }
    best = WarpFirst(best);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x < 32) {
      best = WarpFirst(threadIdx.x < kThreads / 32 ? warps[threadIdx.x] : none);
      if (threadIdx.x == 0) {
        found = best;
        const int at = blockIdx.x * kMaxTopTokens + k;
        p.ids[at] = best.id == INT32_MAX ? 0 : best.id;
        p.log_probs[at] = best.logit - p.log_sums[row];
      }
    }
    __syncthreads();
    previous = found;
  }
}

}  // namespace

void FindTopTokens(const TopTokensParams& params, cudaStream_t stream) {
  Launch(TopTokensKernel, params.num_rows, kThreads, 0, stream, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
