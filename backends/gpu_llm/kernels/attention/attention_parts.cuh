// How shares of attention are put together: those of warps that took other tokens, and those of
// items that took other blocks of a context. A share of a query head is its values, the largest
// score and the sum of weights. And how values that are not of the context are kept out: a weight
// of 0 does not suffice, 0 x NaN is NaN. Device code alone.
#pragma once

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/step_plan.h"

namespace nereid::gpu {

// Floats of a warp's share in shared memory: values, max, sum.
constexpr int PartStride(int head_dim) {
  return head_dim + 4;
}
// Of an item's share in `partials`, [items, num_heads, ItemStride].
constexpr int ItemStride(int head_dim) {
  return head_dim + 2;
}

struct PartSum {
  float max = kNegativeInfinity, sum = 0.0f, value = 0.0f;
};

// A column of a head: the shares of kWarps warps, `stride` floats apart, the first one at `row`.
template <int kHeadDim, int kWarps>
__device__ __forceinline__ PartSum SumWarpParts(const float* row, int stride, int column) {
  PartSum all;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) all.max = fmaxf(all.max, row[w * stride + kHeadDim]);
  if (all.max == kNegativeInfinity) return all;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float* from = row + w * stride;
    const float scale = __expf(from[kHeadDim] - all.max);
    all.value += from[column] * scale;
    all.sum += from[kHeadDim + 1] * scale;
  }
  return all;
}

template <int kHeadDim>
__device__ __forceinline__ void StoreItemPart(float* partials, int item, int num_heads, int head,
                                              int column, const PartSum& part) {
  float* to = partials + (int64_t{item} * num_heads + head) * ItemStride(kHeadDim);
  to[column] = part.value;
  if (column == 0) to[kHeadDim] = part.max, to[kHeadDim + 1] = part.sum;
}

// A column of a head: the shares of all items of the same sequence, in order.
template <int kHeadDim>
__device__ __forceinline__ PartSum SumItemParts(const float* partials, const DecodeItem& item,
                                                int num_heads, int head, int column) {
  PartSum all;
  for (int part = 0; part < item.num_items; ++part) {
    const float* from =
        partials + (int64_t{item.first_item + part} * num_heads + head) * ItemStride(kHeadDim);
    const float part_max = __ldcg(from + kHeadDim);
    if (part_max == kNegativeInfinity) continue;  // all of it lies before the window
    const float max = fmaxf(all.max, part_max);
    const float keep = __expf(all.max - max), scale = __expf(part_max - max);
    all.value = all.value * keep + __ldcg(from + column) * scale;
    all.sum = all.sum * keep + __ldcg(from + kHeadDim + 1) * scale;
    all.max = max;
  }
  return all;
}

// Values of a tile's tokens [first, first + kTokens) become 0, but for those of tokens [begin, end)
// of the tile; by `num_threads` threads, of which this is number `thread`, and which then meet.
// What was there before may be no number. The copy engine and wgmma see what is written.
template <int kHeadDim, int kTokens>
__device__ __forceinline__ void ClearValues(char* values, int first, int begin, int end, int thread,
                                            int num_threads) {
  constexpr int kPieces = kTokens / 8;  // of 16 bytes, of a column
  for (int i = thread; i < kHeadDim * kPieces; i += num_threads) {
    const int token = first + i % kPieces * 8;
    const auto mask = [&](int pair) {
      const int low = token + 2 * pair, high = low + 1;
      return (low >= begin && low < end ? 0xffffu : 0u) |
             (high >= begin && high < end ? 0xffff0000u : 0u);
    };
    auto& piece = *reinterpret_cast<uint4*>(values + ValueOffset<kHeadDim>(token, i / kPieces));
    piece = {piece.x & mask(0), piece.y & mask(1), piece.z & mask(2), piece.w & mask(3)};
  }
  ProxyFence();
}

}  // namespace nereid::gpu
