// Combination of partial attention results: of warps that handle different tokens, and of items
// that handle different blocks of a context. A partial result of a query head is its weighted
// values, the maximum score and the sum of weights. Also clears values outside of the context: a
// weight of 0 does not suffice, since 0 x NaN is NaN. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/step_plan.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

// Floats of a warp's partial result in shared memory: values, max, sum.
constexpr int PartialStride(int head_dim) {
  return head_dim + 4;
}
// Returns where the partial result of a query head begins, for one token of an item, in floats from
// the start of `partials` [items, item_tokens, num_heads, PartialFloats()].
__device__ __forceinline__ int64_t PartialOffset(int head_dim, int num_heads, int item_tokens,
                                                 int item, int token, int head) {
  return ((int64_t{item} * item_tokens + token) * num_heads + head) * PartialFloats(head_dim);
}

struct PartialAttention {
  float max = kNegativeInfinity, sum = 0.0f, value = 0.0f;

  // Adds the result of a following item.
  __device__ __forceinline__ void Add(float item_max, float item_sum, float item_value) {
    if (item_max == kNegativeInfinity) return;  // the item is entirely before the window
    const float new_max = fmaxf(max, item_max);
    const float correction = __expf(max - new_max), scale = __expf(item_max - new_max);
    value = value * correction + item_value * scale;
    sum = sum * correction + item_sum * scale;
    max = new_max;
  }
};

// Combines kColumns adjacent columns of a head over kWarps warps, whose results are `stride` floats
// apart from `row` on.
template <int kHeadDim, int kWarps, int kColumns>
__device__ __forceinline__ void CombineWarpPartials(const float* row, int stride, int column,
                                                    PartialAttention (&all)[kColumns]) {
  float maxima[kWarps], max = kNegativeInfinity;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) maxima[w] = row[w * stride + kHeadDim];
#pragma unroll
  for (const float of_warp : maxima) max = fmaxf(max, of_warp);
  if (max == kNegativeInfinity) return;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float* from = row + w * stride;
    const float scale = __expf(maxima[w] - max), sum = from[kHeadDim + 1] * scale;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      all[i].value += from[column + i] * scale;
      all[i].sum += sum;
    }
  }
#pragma unroll
  for (PartialAttention& of_column : all) of_column.max = max;
}

// `to`: PartialOffset().
template <int kHeadDim>
__device__ __forceinline__ void StoreItemPartial(float* to, int column,
                                                 const PartialAttention& part) {
  to[column] = part.value;
  if (column == 0) to[kHeadDim] = part.max, to[kHeadDim + 1] = part.sum;
}

// Combines adjacent columns of a query head over `num_items` items, in order. `from`:
// PartialOffset() of the first, `stride`: floats to the next.
template <int kHeadDim, int kColumns>
__device__ __forceinline__ void CombineItemPartials(const float* from, int64_t stride,
                                                    int num_items, int column,
                                                    PartialAttention (&all)[kColumns]) {
  // Items whose loads are under way at the same time. With wide heads more would spill registers.
  constexpr int kAtOnce = kHeadDim > 128 ? 1 : 4;
  for (int first = 0; first < num_items; first += kAtOnce) {
    float max[kAtOnce], sum[kAtOnce] = {}, values[kAtOnce][kColumns] = {};
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      max[i] = kNegativeInfinity;
      if (first + i >= num_items) continue;
      const float* item = from + (first + i) * stride;
      max[i] = __ldcg(item + kHeadDim), sum[i] = __ldcg(item + kHeadDim + 1);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) values[i][c] = __ldcg(item + column + c);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) all[c].Add(max[i], sum[i], values[i][c]);
    }
  }
}

// Of a tile's tokens [first, first + kTokens), sets the values of those from token `end` of the
// tile on to 0. Before, they may be NaN. `num_threads` threads call it, each with its index
// `thread`, and must synchronise afterwards. The copy engine and wgmma see the writes.
template <int kHeadDim, int kTokens>
__device__ __forceinline__ void ClearValues(char* values, int first, int end, int thread,
                                            int num_threads) {
  constexpr int kChunks = kTokens / 8;  // 16-byte chunks of a column
  for (int i = thread; i < kHeadDim * kChunks; i += num_threads) {
    const int token = first + i % kChunks * 8;
    const auto mask = [&](int pair) {
      const int low = token + 2 * pair, high = low + 1;
      return (low < end ? 0xffffu : 0u) | (high < end ? 0xffff0000u : 0u);
    };
    auto& chunk = *reinterpret_cast<uint4*>(values + ValueOffset<kHeadDim>(token, i / kChunks));
    chunk = {chunk.x & mask(0), chunk.y & mask(1), chunk.z & mask(2), chunk.w & mask(3)};
  }
  ProxyFence();
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
