// A consumer's softmax in prefill_attention.cu, of the two rows of queries that each of its threads
// has: scores of one KV block become weights, and what rescales the sums of the blocks before.
#pragma once

#include "backends/gpu_llm/kernels/attention/attention_parts.cuh"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/prefill_attention.h"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/wgmma.cuh"

namespace nereid::gpu {

struct Softmax {
  float max[2], sum[2];
};

// 2^x; what is smaller than a normal number is 0.
__device__ __forceinline__ float Exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Weights grow up to 2^kSlack before sums are rescaled to a new maximum, which is rare then. A
// row's result does not depend on others for that: it has a base of its own.
constexpr float kSlack = 8.0f;

// Scores of one KV block become weights, in place; `keep`: what rescales what was added up before.
__device__ __forceinline__ void ToWeights(const PrefillAttentionParams& p, float (&scores)[32],
                                          Softmax& state, float (&keep)[2], int first_token,
                                          const int (&position)[2], bool masks) {
  const int t = threadIdx.x % 4;
  // exp(x) = exp2(x * log2(e)); without a soft cap the scale goes into the same multiplication.
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
    if (masks) {  // columns (after, last] of the block are seen
      const int last = position[half] - first_token - 2 * t;
      const int after = p.window > 0 ? last - p.window : -kBlockTokens;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          if (8 * j + b > last || 8 * j + b <= after)
            scores[4 * j + 2 * half + b] = kNegativeInfinity;
        }
      }
    }
    float max = kNegativeInfinity;
#pragma unroll
    for (int j = 0; j < 8; ++j)
      max = fmaxf(max, fmaxf(scores[4 * j + 2 * half], scores[4 * j + 2 * half + 1]));
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
    const bool grows = (max - state.max[half]) * factor > kSlack;  // never where all is hidden
    keep[half] = grows ? Exp2((state.max[half] - max) * factor) : 1.0f;
    if (grows) state.max[half] = max;
    const float base = state.max[half] == kNegativeInfinity ? 0.0f : state.max[half] * factor;
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        float& score = scores[4 * j + 2 * half + b];
        score = Exp2(score * factor - base);
        sum += score;
      }
    }
    state.sum[half] = state.sum[half] * keep[half] + sum;
  }
  Pin(scores);  // here, not behind a wait that follows
}

template <int kValues>
__device__ __forceinline__ void Rescale(float (&out)[kValues], const float (&keep)[2]) {
  if (!__any_sync(0xffffffffu, keep[0] != 1.0f || keep[1] != 1.0f)) return;
#pragma unroll
  for (int n = 0; n < kValues / 4; ++n) {
    out[4 * n] *= keep[0], out[4 * n + 1] *= keep[0];
    out[4 * n + 2] *= keep[1], out[4 * n + 3] *= keep[1];
  }
}

// As operand a of the four steps of a block's product with its values.
__device__ __forceinline__ void PackWeights(const float (&scores)[32], uint32_t (&weights)[16]) {
#pragma unroll
  for (int s = 0; s < 4; ++s) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int j = 2 * s + k / 2;
      weights[4 * s + k] = PackBf16(scores[4 * j + 2 * (k % 2)], scores[4 * j + 2 * (k % 2) + 1]);
    }
  }
}

}  // namespace nereid::gpu
