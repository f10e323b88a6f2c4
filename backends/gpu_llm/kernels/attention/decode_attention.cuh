// The parts of decode attention that bf16 and quantized caches share: the shape of a block of
// threads, and the combination of partial results at the end of an item. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/kv_ring.cuh"
#include "backends/gpu_llm/kernels/attention/partial_attention.cuh"
#include "backends/gpu_llm/kernels/attention/visible_blocks.cuh"
#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_attention {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * (kWarps + kCopyWarps);
constexpr int kWarpTokens = kBlockTokens / kWarps;
constexpr int kRows = kItemRows;  // queries of a block of threads

constexpr int PartialsBytes(int head_dim) {
  return 4 * kWarps * kRows * PartialStride(head_dim);
}

// The query rows of a block of threads: pairs of a token of the item and a query head of the
// key/value head. With more than kRows query heads, blockIdx.z selects a part of them.
struct QueryRows {
  const DecodeAttentionParams& p;
  const DecodeItem& item;
  int group, first, count;

  __device__ __forceinline__ QueryRows(const DecodeAttentionParams& params, const DecodeItem& of)
      : p(params), item(of), group(params.num_heads / params.num_kv_heads) {
    first = static_cast<int>(blockIdx.z) * kRows;
    count = min(kRows, item.num_tokens * group - first);
  }
  __device__ __forceinline__ int Token(int row) const {
    return item.num_tokens == 1 ? 0 : (first + row) / group;
  }
  __device__ __forceinline__ int Head(int row) const {
    return static_cast<int>(blockIdx.y) * group + first + row - Token(row) * group;
  }
  // The blocks of the item that a row sees.
  __device__ __forceinline__ VisibleBlocks Blocks() const {
    return {item.first_tile, item.last_tile, p.num_sinks, FirstVisible() / kBlockTokens};
  }
  // Of the tokens that a row sees, besides sinks: the first one, and the one behind the last.
  __device__ __forceinline__ int End(int row) const {
    return item.length - item.num_tokens + 1 + Token(row);
  }
  __device__ __forceinline__ int Begin(int row) const {
    return p.window > 0 ? max(0, End(row) - p.window) : 0;
  }
  // The first token besides sinks that any row sees.
  __device__ __forceinline__ int FirstVisible() const { return Begin(0); }
  // The tokens behind the sinks that a row does not see.
  __device__ __forceinline__ unsigned Gap(int row) const {
    return static_cast<unsigned>(max(0, Begin(row) - p.num_sinks));
  }
  __device__ __forceinline__ const bf16* Query(int row, int head_dim) const {
    return p.qkv + int64_t{item.row + Token(row)} * p.qkv_stride + Head(row) * head_dim;
  }
  __device__ __forceinline__ bf16* Out(int row, int head_dim) const {
    return p.out + (int64_t{item.row + Token(row)} * p.num_heads + Head(row)) * head_dim;
  }
  __device__ __forceinline__ float* Partial(int row, int head_dim, int item_index) const {
    return p.partials +
           PartialOffset(head_dim, p.num_heads, p.item_tokens, item_index, Token(row), Head(row));
  }
};

// Combines the results of the items with the same queries, in order. A thread has two adjacent
// columns of a head and loads the results of several items at once, because the latency of the
// loads is what it takes.
template <int kHeadDim>
__device__ void Combine(const QueryRows& rows) {
  constexpr int kAtOnce = 8, kPairs = kHeadDim / 2;
  const DecodeItem& item = rows.item;
  const int64_t stride = int64_t{rows.p.item_tokens} * rows.p.num_heads * PartialFloats(kHeadDim);
#pragma unroll 1
  for (int i = threadIdx.x; i < rows.count * kPairs; i += kThreads) {
    const int row = i / kPairs, column = i % kPairs * 2;
    const float* from = rows.Partial(row, kHeadDim, item.first_item);
    PartialAttention low, high;
#pragma unroll 1
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
    *reinterpret_cast<uint32_t*>(rows.Out(row, kHeadDim) + column) =
        PackBf16(__fdividef(low.value, low.sum), __fdividef(high.value, high.sum));
  }
}

// Combines the warps' partial results of an item, [kWarps][rows.count][PartialStride()] in shared
// memory, and writes the output rows. If the context is split into several items, the partial
// results go to `partials`, and the last item to finish combines them.
template <int kHeadDim>
__device__ void CombineWarps(const QueryRows& rows, const float* shared) {
  constexpr int kStride = PartialStride(kHeadDim);
  const DecodeItem& item = rows.item;
  const int num_rows = rows.count;
  __syncthreads();
#pragma unroll 1  // instructions that run once must first be loaded
  for (int i = threadIdx.x; i < num_rows * kHeadDim; i += kThreads) {
    const int row = i / kHeadDim, column = i % kHeadDim;
    PartialAttention all[1];
    CombineWarpPartials<kHeadDim, kWarps>(shared + row * kStride, num_rows * kStride, column, all);
    if (item.num_items == 1) {
      rows.Out(row, kHeadDim)[column] = __float2bfloat16(__fdividef(all[0].value, all[0].sum));
    } else {
      StoreItemPartial<kHeadDim>(rows.Partial(row, kHeadDim, static_cast<int>(blockIdx.x)), column,
                                 all[0]);
    }
  }
  if (item.num_items == 1) return;
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t* ticket = rows.p.tickets + item.sequence * rows.p.num_heads + rows.Head(0);
    is_last = atomicAdd(ticket, 1) == item.num_items - 1;
    if (is_last) *ticket = 0;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  Combine<kHeadDim>(rows);
}

__device__ __forceinline__ float RowSum(float sum) {
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}

// Ends an item. The results of the four warps are stored in the memory of the ring, then combined.
// `kAlternates`: accumulators 2 n and 2 n + 1 of `out` have the even and the odd columns of 16.
template <int kHeadDim, bool kBothHalves, bool kAlternates = false>
__device__ void FinishItem(const QueryRows& rows, char* stages, const float (&out)[kHeadDim / 8][4],
                           const float (&row_max)[2], float (&row_sum)[2]) {
  constexpr int kStride = PartialStride(kHeadDim);
  const int num_rows = rows.count;
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  __syncthreads();
  float* shared = reinterpret_cast<float*>(stages);
#pragma unroll
  for (int half = 0; half < (kBothHalves ? 2 : 1); ++half) {
    row_sum[half] = RowSum(row_sum[half]);
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
  CombineWarps<kHeadDim>(rows, shared);
}

// The same for up to 8 rows with `out` transposed: [n] has columns 16 n + g and 16 n + 8 + g, each
// for rows 2 t and 2 t + 1.
template <int kHeadDim>
__device__ void FinishItemOfFewRows(const QueryRows& rows, char* stages,
                                    const float (&out)[kHeadDim / 16][4], float row_max,
                                    float row_sum) {
  constexpr int kStride = PartialStride(kHeadDim);
  const int num_rows = rows.count;
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  __syncthreads();
  float* shared = reinterpret_cast<float*>(stages);
  row_sum = RowSum(row_sum);
  if (warp < kWarps) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const int row = 2 * t + b;
      if (row >= num_rows) continue;
      float* to = shared + (warp * num_rows + row) * kStride;
#pragma unroll
      for (int n = 0; n < kHeadDim / 16; ++n)
        to[16 * n + g] = out[n][b], to[16 * n + 8 + g] = out[n][2 + b];
    }
    if (g < num_rows && t == 0) {
      float* to = shared + (warp * num_rows + g) * kStride;
      to[kHeadDim] = row_max, to[kHeadDim + 1] = row_sum;
    }
  }
  CombineWarps<kHeadDim>(rows, shared);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_attention
