// The parts of decode attention that bf16 and quantized caches share: the shape of a block of
// threads, and the combination of partial results at the end of an item. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/kv_ring.cuh"
#include "backends/gpu_llm/kernels/attention/partial_attention.cuh"
#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_attention {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * (kWarps + kCopyWarps);
constexpr int kWarpTokens = kBlockTokens / kWarps;
constexpr int kRows = 16;  // query heads of a block of threads

constexpr int PartialsBytes(int head_dim) {
  return 4 * kWarps * kRows * PartialStride(head_dim);
}

// Combines the results of a sequence's items, in order. A thread has two adjacent columns of a head
// and loads the results of several items at once, because the latency of the loads is what it
// takes.
template <int kHeadDim>
__device__ void Combine(const DecodeAttentionParams& p, const DecodeItem& item, int first_head,
                        int num_rows) {
  constexpr int kAtOnce = 8, kPairs = kHeadDim / 2;
  const int64_t stride = int64_t{p.num_heads} * ItemStride(kHeadDim);
  for (int i = threadIdx.x; i < num_rows * kPairs; i += kThreads) {
    const int head = first_head + i / kPairs, column = i % kPairs * 2;
    const float* from =
        p.partials + item.first_item * stride + int64_t{head} * ItemStride(kHeadDim);
    PartialAttention low, high;
    for (int first = 0; first < item.num_items; first += kAtOnce) {
      float2 sums[kAtOnce], values[kAtOnce];  // maximum and sum, two columns
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const float* part = from + min(first + j, item.num_items - 1) * stride;
        sums[j] = __ldcg(reinterpret_cast<const float2*>(part + kHeadDim));
        values[j] = __ldcg(reinterpret_cast<const float2*>(part + column));
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (first + j >= item.num_items) break;
        low.Add(sums[j].x, sums[j].y, values[j].x);
        high.Add(sums[j].x, sums[j].y, values[j].y);
      }
    }
    auto* out = reinterpret_cast<uint32_t*>(
        p.out + (int64_t{item.row} * p.num_heads + head) * kHeadDim + column);
    *out = PackBf16(low.value / low.sum, high.value / high.sum);
  }
}

// Combines the warps' partial results of an item and writes the output row. If the context is split
// into several items, the partial results go to `partials`, and the last item to finish combines
// them. `kAlternates`: accumulators 2 n and 2 n + 1 of `out` have the even and the odd columns of
// 16.
template <int kHeadDim, bool kBothHalves, bool kAlternates = false>
__device__ void FinishItem(const DecodeAttentionParams& p, const DecodeItem& item, char* stages,
                           const float (&out)[kHeadDim / 8][4], const float (&row_max)[2],
                           float (&row_sum)[2], int first_head, int num_rows) {
  constexpr int kStride = PartialStride(kHeadDim);
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  // The partial results of the four warps are stored in the memory of the ring, then combined.
  __syncthreads();
  float* shared =
      reinterpret_cast<float*>(stages);  // [kWarps][num_rows][kStride]: values, max, sum
#pragma unroll
  for (int half = 0; half < (kBothHalves ? 2 : 1); ++half) {
    row_sum[half] += __shfl_xor_sync(0xffffffffu, row_sum[half], 1);
    row_sum[half] += __shfl_xor_sync(0xffffffffu, row_sum[half], 2);
    const int row = g + 8 * half;
    if (row >= num_rows || warp == kWarps) continue;
    float* to = shared + (warp * num_rows + row) * kStride;
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
      const int column = kAlternates ? n / 2 * 16 + 4 * t + n % 2 : 8 * n + 2 * t;
      to[column] = out[n][2 * half], to[column + (kAlternates ? 2 : 1)] = out[n][2 * half + 1];
    }
    if (t == 0) to[kHeadDim] = row_max[half], to[kHeadDim + 1] = row_sum[half];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < num_rows * kHeadDim; i += kThreads) {
    const int row = i / kHeadDim, column = i % kHeadDim;
    const PartialAttention all =
        CombineWarpPartials<kHeadDim, kWarps>(shared + row * kStride, num_rows * kStride, column);
    if (item.num_items == 1) {
      p.out[(int64_t{item.row} * p.num_heads + first_head + row) * kHeadDim + column] =
          __float2bfloat16(all.value / all.sum);
    } else {
      StoreItemPartial<kHeadDim>(p.partials, static_cast<int>(blockIdx.x), p.num_heads,
                                 first_head + row, column, all);
    }
  }
  if (item.num_items == 1) return;
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t* ticket = p.tickets + item.sequence * p.num_heads + first_head;
    is_last = atomicAdd(ticket, 1) == item.num_items - 1;
    if (is_last) *ticket = 0;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  Combine<kHeadDim>(p, item, first_head, num_rows);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_attention
