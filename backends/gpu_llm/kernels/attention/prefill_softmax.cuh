// Online softmax of a consumer thread in prefill_attention.cu, for its two rows of queries: turns
// the scores of one KV block into weights and rescales the previous sums.
#pragma once

#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/partial_attention.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/wgmma.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

struct SoftmaxState {
  float max[2], sum[2];
};

// 2^x; denormal results are 0.
__device__ __forceinline__ float Exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Weights may grow to 2^kRescaleThreshold before the sums are rescaled to a new maximum, so that
// rescaling is rare. Each row has its own base, so a row's result does not depend on other rows.
constexpr float kRescaleThreshold = 8.0f;

// Turns the scores of kBlocks KV blocks, whose first tokens are `first_token`, into weights, in
// place. `rescale`: factors of the previous sums.
template <int kBlocks>
__device__ __forceinline__ void ScoresToWeights(const PrefillAttentionParams& p,
                                                float (&scores)[32 * kBlocks], SoftmaxState& state,
                                                float (&rescale)[2],
                                                const int (&first_token)[kBlocks],
                                                const int (&position)[2], bool masks) {
  const int t = threadIdx.x % 4;
  // exp(x) = exp2(x * log2(e)). Without a soft cap one multiplication applies both factors.
  constexpr float kLog2E = 1.4426950408889634f;
  float factor = p.scale * kLog2E;
  if (p.soft_cap > 0.0f) {
    const float inverse = p.scale / p.soft_cap;
#pragma unroll
    for (float& score : scores) score = p.soft_cap * tanhf(score * inverse);
    factor = kLog2E;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (masks) {  // columns (after, last] of the block are visible, and those before `sinks`
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
        const int last = position[half] - first_token[n] - 2 * t;
        const int after = p.window > 0 ? last - p.window : -kBlockTokens;
        const int sinks = p.num_sinks - first_token[n] - 2 * t;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
#pragma unroll
          for (int b = 0; b < 2; ++b) {
            if (8 * j + b > last || (8 * j + b <= after && 8 * j + b >= sinks))
              scores[32 * n + 4 * j + 2 * half + b] = kNegativeInfinity;
          }
        }
      }
    }
    float max = kNegativeInfinity;
#pragma unroll
    for (int j = 0; j < 8 * kBlocks; ++j)
      max = fmaxf(max, fmaxf(scores[4 * j + 2 * half], scores[4 * j + 2 * half + 1]));
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
    const bool grows =
        (max - state.max[half]) * factor > kRescaleThreshold;  // false if all scores are masked
    rescale[half] = grows ? Exp2((state.max[half] - max) * factor) : 1.0f;
    if (grows) state.max[half] = max;
    const float base = state.max[half] == kNegativeInfinity ? 0.0f : state.max[half] * factor;
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 8 * kBlocks; ++j) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        float& score = scores[4 * j + 2 * half + b];
        score = Exp2(score * factor - base);
        sum += score;
      }
    }
    state.sum[half] = state.sum[half] * rescale[half] + sum;
  }
  FenceAccumulators(scores);  // computes the weights here and not after a later wait
}

template <int kValues>
__device__ __forceinline__ void Rescale(float (&out)[kValues], const float (&rescale)[2]) {
  if (!__any_sync(0xffffffffu, rescale[0] != 1.0f || rescale[1] != 1.0f)) return;
#pragma unroll
  for (int n = 0; n < kValues / 4; ++n) {
    out[4 * n] *= rescale[0], out[4 * n + 1] *= rescale[0];
    out[4 * n + 2] *= rescale[1], out[4 * n + 3] *= rescale[1];
  }
}

// Packs weights as operand a of the product with the values: four registers for 16 tokens.
template <int kScores>
__device__ __forceinline__ void PackWeights(const float (&scores)[kScores],
                                            uint32_t (&weights)[kScores / 2]) {
#pragma unroll
  for (int s = 0; s < kScores / 8; ++s) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int j = 2 * s + k / 2;
      weights[4 * s + k] = PackBf16(scores[4 * j + 2 * (k % 2)], scores[4 * j + 2 * (k % 2) + 1]);
    }
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
