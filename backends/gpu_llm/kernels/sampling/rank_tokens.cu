// Grid: a block of threads for each kRankSplitTokens logits of a row. They stay in registers, and a
// pass of the block finds the next token; the last block to finish ranks those of all blocks.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/sampling/rank_tokens.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kThreads = 256, kRankWarps = kThreads / 32;

struct RankedToken {
  float logit = kNegativeInfinity;
  int32_t id = INT32_MAX;
};

__device__ __forceinline__ bool Precedes(const RankedToken& a, const RankedToken& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

struct RankShared {
  RankedToken warps[kRankWarps];
  float max[kRankWarps], sum[kRankWarps];
};

// The first token of all threads. Called by all of them.
__device__ __forceinline__ RankedToken BlockFirst(RankedToken token, RankShared& shared) {
  const auto join = [](RankedToken of) {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) {
      const RankedToken other = {__shfl_xor_sync(0xffffffffu, of.logit, lane),
                                 __shfl_xor_sync(0xffffffffu, of.id, lane)};
      if (Precedes(other, of)) of = other;
    }
    return of;
  };
  token = join(token);
  __syncthreads();  // the previous call has read
  if (threadIdx.x % 32 == 0) shared.warps[threadIdx.x / 32] = token;
  __syncthreads();
  return join(shared.warps[threadIdx.x % kRankWarps]);
}

// Calls take(k, token) on thread 0 with the `count` first tokens of all threads, which have
// kTokens each.
template <int kTokens, typename Take>
__device__ __forceinline__ void RankBlock(RankedToken (&tokens)[kTokens], int count,
                                          RankShared& shared, const Take& take) {
  for (int k = 0; k < count; ++k) {
    RankedToken own;
#pragma unroll
    for (const RankedToken& token : tokens)
      if (Precedes(token, own)) own = token;
    const RankedToken first = BlockFirst(own, shared);
    if (threadIdx.x == 0) take(k, first);
#pragma unroll
    for (RankedToken& token : tokens)
      if (token.id == first.id) token = RankedToken();
  }
}

// The maximum, and the sum of exp(logit - maximum), of all threads. Called by all of them.
__device__ __forceinline__ void JoinSums(float& max, float& sum, RankShared& shared) {
  const auto join = [&] {
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) {
      const float other_max = __shfl_xor_sync(0xffffffffu, max, lane);
      const float other_sum = __shfl_xor_sync(0xffffffffu, sum, lane);
      const float joined = fmaxf(max, other_max);
      const float base = joined == kNegativeInfinity ? 0.0f : joined;
      sum = sum * __expf(max - base) + other_sum * __expf(other_max - base);
      max = joined;
    }
  };
  join();
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared.max[threadIdx.x / 32] = max, shared.sum[threadIdx.x / 32] = sum;
  __syncthreads();
  const bool is_first = threadIdx.x % 32 < kRankWarps;
  max = is_first ? shared.max[threadIdx.x % kRankWarps] : kNegativeInfinity;
  sum = is_first ? shared.sum[threadIdx.x % kRankWarps] : 0.0f;
  join();
}

__global__ void __launch_bounds__(kThreads) RankTokensKernel(RankTokensParams p) {
  constexpr int kEach = kRankSplitTokens / kThreads;
  __shared__ RankShared shared;
  __shared__ bool is_last;
  LaunchNext();
  WaitForPrevious();
  const int64_t row = blockIdx.y;
  const float* const logits = p.logits + row * p.stride;
  RankPartial* const partials = p.partials + row * kMaxRankSplits;
  RankPartial& partial = partials[blockIdx.x];
  RankedToken tokens[kEach];
  float max = kNegativeInfinity, sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int id = static_cast<int>(blockIdx.x) * kRankSplitTokens + i * kThreads +
                   static_cast<int>(threadIdx.x);
    if (id < p.vocab_size) tokens[i] = {logits[id], id};
    max = fmaxf(max, tokens[i].logit);
  }
  const float base = max == kNegativeInfinity ? 0.0f : max;
#pragma unroll
  for (const RankedToken& token : tokens) sum += __expf(token.logit - base);
  JoinSums(max, sum, shared);
  if (threadIdx.x == 0) partial.max = max, partial.sum = sum;
  RankBlock(tokens, p.num_tokens, shared, [&](int k, const RankedToken& token) {
    partial.logits[k] = token.logit, partial.ids[k] = token.id;
  });
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicAdd(p.tickets + row, 1) == static_cast<int>(gridDim.x) - 1;
    if (is_last) p.tickets[row] = 0;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  const bool has_partial = threadIdx.x < gridDim.x;
  max = has_partial ? __ldcg(&partials[threadIdx.x].max) : kNegativeInfinity;
  sum = has_partial ? __ldcg(&partials[threadIdx.x].sum) : 0.0f;
  JoinSums(max, sum, shared);
  const float log_sum = max + logf(sum);
  constexpr int kCandidates = kMaxRankSplits * kMaxRankedTokens / kThreads;
  RankedToken candidates[kCandidates];
#pragma unroll
  for (int i = 0; i < kCandidates; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    const int split = at / kMaxRankedTokens, k = at % kMaxRankedTokens;
    if (split < static_cast<int>(gridDim.x) && k < p.num_tokens)
      candidates[i] = {__ldcg(partials[split].logits + k), __ldcg(partials[split].ids + k)};
  }
  RankBlock(candidates, p.num_tokens, shared, [&](int k, const RankedToken& token) {
    const int64_t at = row * kMaxRankedTokens + k;
    p.ids[at] = token.id == INT32_MAX ? 0 : token.id;
    p.log_probs[at] = token.logit - log_sum;
  });
}

}  // namespace

void RankTokens(const RankTokensParams& params, cudaStream_t stream) {
  const int splits = (params.vocab_size + kRankSplitTokens - 1) / kRankSplitTokens;
  Launch(RankTokensKernel, dim3(splits, params.num_rows), kThreads, 0, stream, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
