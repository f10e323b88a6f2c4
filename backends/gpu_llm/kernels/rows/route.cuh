// What the routing kernels of both forms share: scores of rows by the router, selection of a row's
// experts, and the sort of the pairs of row and expert. Device code only, but for SplitRoute().
#pragma once

#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/rows/moe.h"

namespace nereid::gpu::NEREID_KERNEL_FORM::route {

constexpr int kRouteWarps = 8, kRouteThreads = 32 * kRouteWarps;
constexpr int kRouteRows = 16;         // whose scores are computed together
constexpr int kRouteExperts = 16;      // of a block at once
constexpr int kMinRouteColumns = 256;  // of a slice of the depth
constexpr int kFewExperts = kMaxRouteSlices * kRouteExperts;
// Most pairs that the last block of the routing kernel sorts; more are sorted by more threads.
constexpr int kMaxRouteSort = 4096;

// Position of a score in the order of floats, as an integer. NaN is below all.
__device__ __forceinline__ uint32_t OrderOf(float score) {
  const uint32_t bits = __float_as_uint(score);
  if (!(score == score)) return 0;
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float ScoreOf(uint32_t order) {
  if (order == 0) return kNegativeInfinity;
  return __uint_as_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

// How the blocks for kRouteRows rows share the work: each has some experts and a slice of the
// depth.
struct RouteSplit {
  int experts, depth;
  float* squares;  // [depth, num_rows]: partial sums of the rows' squares
  __host__ __device__ int num_blocks() const { return experts * depth; }
};

// At most kMaxRouteSlices blocks for kRouteRows rows. `scores` has RouteScoresSize() floats, the
// last of which hold the squares.
inline RouteSplit SplitRoute(const RouteParams& p) {
  RouteSplit split = {1, 1, nullptr};
  while (split.experts < kMaxRouteSlices && split.experts * kRouteExperts < p.num_experts)
    split.experts *= 2;
  while (split.num_blocks() < kMaxRouteSlices &&
         p.hidden_size >= 2 * split.depth * kMinRouteColumns)
    split.depth *= 2;
  split.squares = p.scores + int64_t{split.depth} * p.num_rows * p.num_experts;
  return split;
}

// The sum of the slices' values, which are `stride` apart. The loads do not wait for each other.
template <int kMaxSlices>
__device__ __forceinline__ float SumSlices(const float* first, int64_t stride, int num_slices) {
  float values[kMaxSlices], sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kMaxSlices; ++i)
    values[i] = i < num_slices ? __ldcg(first + i * stride) : 0.0f;
#pragma unroll
  for (const float value : values) sum += value;
  return sum;
}

// The factor of the norm of a row.
__device__ __forceinline__ float NormFactor(const RouteParams& p, const RouteSplit& split,
                                            int64_t row) {
  const float square = SumSlices<kMaxRouteSlices>(split.squares + row, p.num_rows, split.depth);
  return rsqrtf(square / static_cast<float>(p.hidden_size) + p.epsilon);
}

struct SelectedExpert {
  int32_t expert;
  float weight;  // in the sum of the row's experts
};

// Selects the experts of a row with one warp. `orders`: OrderOf() the scores, of which lane l has
// those of experts l, l + 32, ..., and 0 where there is no expert; they are changed. Lane i returns
// the expert with the i-th highest score.
template <int kLaneExperts>
__device__ __forceinline__ SelectedExpert SelectByOrder(uint32_t (&orders)[kLaneExperts],
                                                        int experts_per_token, bool normalizes) {
  const int lane = threadIdx.x % 32;
  float all = 0.0f, chosen = 0.0f, first_score = 0.0f;
  SelectedExpert own = {};
  for (int rank = 0; rank < experts_per_token; ++rank) {
    uint32_t best = 0;
    int32_t at = INT32_MAX;
#pragma unroll
    for (int i = 0; i < kLaneExperts; ++i) {
      if (orders[i] > best) best = orders[i], at = i * 32 + lane;
    }
    const uint32_t highest = __reduce_max_sync(0xffffffffu, best);
    at = __reduce_min_sync(0xffffffffu, best == highest ? at : INT32_MAX);
    if (at == INT32_MAX) at = rank;  // a row without valid scores: any expert will do
    const float score = ScoreOf(highest);
    if (rank == 0) {
      first_score = score;
      if (!normalizes) {
#pragma unroll
        for (const uint32_t order : orders) all += __expf(ScoreOf(order) - first_score);
        all = WarpSum(all);
      }
    }
    const float weight = __expf(score - first_score);
    chosen += weight;
    if (lane == rank) own = {at, weight};
#pragma unroll
    for (int i = 0; i < kLaneExperts; ++i) {
      if (i * 32 + lane == at) orders[i] = 0;
    }
  }
  own.weight /= normalizes ? chosen : all;
  return own;
}

// Sums a row's scores and selects its experts, with one warp.
template <bool kNorms, int kLaneExperts>
__device__ __forceinline__ void SelectExperts(const RouteParams& p, const RouteSplit& split,
                                              int64_t row) {
  const int lane = threadIdx.x % 32;
  const int64_t slice = int64_t{p.num_rows} * p.num_experts;
  // SplitRoute divides the depth into slices only up to kFewExperts experts; with more there is
  // one.
  constexpr int kMaxSlices = kLaneExperts * 32 > kFewExperts ? 1 : kMaxRouteSlices;
  uint32_t orders[kLaneExperts];
  float sums[kLaneExperts] = {};
#pragma unroll
  for (int i = 0; i < kLaneExperts; ++i) {
    const int expert = i * 32 + lane;
    if (expert < p.num_experts) {
      sums[i] = SumSlices<kMaxSlices>(p.scores + row * p.num_experts + expert, slice, split.depth);
    }
  }
  const float factor = kNorms ? NormFactor(p, split, row) : 1.0f;
#pragma unroll
  for (int i = 0; i < kLaneExperts; ++i)
    orders[i] = i * 32 + lane < p.num_experts ? OrderOf(sums[i] * factor) : 0;
  const SelectedExpert own = SelectByOrder(orders, p.experts_per_token, p.normalizes);
  if (lane >= p.experts_per_token) return;
  const int64_t pair = row * p.experts_per_token + lane;
  p.experts[pair] = own.expert;
  p.router_weights[pair] = own.weight;
}

// Sorts the pairs by expert with one block of threads. The order of pairs of one expert is
// arbitrary, because each pair is computed independently.
__device__ inline void SortPairsInBlock(const SortPairsParams& p) {
  __shared__ int32_t counts[kMaxExperts], firsts[kMaxExperts], first_tiles[kMaxExperts];
  __shared__ int32_t num_tiles;
  const int num_threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  // Of the thread's first pairs; those of further ones are read again.
  constexpr int kOwn = 8;
  int32_t experts[kOwn], ranks[kOwn];
  const int first_further = kOwn * num_threads + thread;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int pair = i * num_threads + thread;
    experts[i] = pair < p.num_pairs ? __ldcg(p.experts + pair) : -1;
  }
  for (int i = thread; i < p.num_experts; i += num_threads) counts[i] = 0;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (experts[i] >= 0) ranks[i] = atomicAdd(&counts[experts[i]], 1);
  }
#pragma unroll 4
  for (int i = first_further; i < p.num_pairs; i += num_threads)
    p.sorted_index[i] = atomicAdd(&counts[__ldcg(p.experts + i)], 1);
  __syncthreads();
  if (thread < 32) {  // prefix sums; a lane has consecutive experts
    const int each = (p.num_experts + 31) / 32, lane = thread;
    const int first = lane * each, last = min(p.num_experts, first + each);
    int32_t pair_count = 0, tiles = 0;
    for (int expert = first; expert < last; ++expert) {
      pair_count += counts[expert];
      tiles += (counts[expert] + p.tile_rows - 1) / p.tile_rows;
    }
    int32_t pair_offset = pair_count, tile = tiles;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int32_t other_offset = __shfl_up_sync(0xffffffffu, pair_offset, distance);
      const int32_t other_tile = __shfl_up_sync(0xffffffffu, tile, distance);
      if (lane >= distance) pair_offset += other_offset, tile += other_tile;
    }
    if (lane == 31) num_tiles = tile;
    pair_offset -= pair_count, tile -= tiles;
    for (int expert = first; expert < last; ++expert) {
      firsts[expert] = pair_offset;
      first_tiles[expert] = tile;
      pair_offset += counts[expert];
      tile += (counts[expert] + p.tile_rows - 1) / p.tile_rows;
    }
  }
  __syncthreads();
  for (int expert = thread; expert < p.num_experts; expert += num_threads) {
    for (int32_t done = 0, tile = first_tiles[expert]; done < counts[expert];
         done += p.tile_rows, ++tile) {
      p.tiles[tile] = {expert, firsts[expert] + done, min(p.tile_rows, counts[expert] - done)};
    }
  }
  for (int tile = num_tiles + thread; tile < p.num_tiles; tile += num_threads)
    p.tiles[tile] = {-1, 0, 0};
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (experts[i] < 0) break;
    const int32_t at = firsts[experts[i]] + ranks[i];
    p.pairs[at] = i * num_threads + thread;
    p.sorted_index[i * num_threads + thread] = at;
  }
#pragma unroll 4
  for (int i = first_further; i < p.num_pairs; i += num_threads) {
    const int32_t at = firsts[__ldcg(p.experts + i)] + p.sorted_index[i];
    p.pairs[at] = i;
    p.sorted_index[i] = at;
  }
}

// The weighted values of eight columns of a row, packed to bf16. Adds their squares to `squares`.
__device__ __forceinline__ uint4 Weigh(const uint4& packed, const uint4& packed_weights,
                                       float& squares) {
  float values[8], weights[8];
  Unpack8(packed, values);
  Unpack8(packed_weights, weights);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    squares += values[i] * values[i];
    values[i] *= weights[i];
  }
  return Pack8(values);
}

// Shared memory of a block.
struct alignas(16) RouteShared {
  float parts[kRouteWarps][kRouteExperts][kRouteRows];
  float squares[kRouteWarps][kRouteRows];
  bool is_last;
};

// Scores of kRouteRows rows from `row` on by the experts from `expert` on in a slice of the depth,
// on the tensor cores. The warps share the slice. The order of the depth within a step of 32 is
// free as long as both operands agree, so a thread has 8 contiguous values of a row
// (stream_gemm.cuh). The factor of the norm, which depends on the whole row, is applied later.
// kAtOnce steps are loaded at a time, in registers; the sums do not depend on it.
template <bool kNorms, int kAtOnce = 8>
__device__ __forceinline__ void ScoreRows(const RouteParams& p, const RouteSplit& split, int slice,
                                          int row, int expert, bool waits_for_previous,
                                          RouteShared& shared) {
  constexpr int kTiles = kRouteRows / 8;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const bf16* low_router = p.router + int64_t{min(expert + g, p.num_experts - 1)} * p.hidden_size;
  const bf16* high_router =
      p.router + int64_t{min(expert + g + 8, p.num_experts - 1)} * p.hidden_size;
  const bf16* rows[kTiles];
  bool is_row[kTiles];
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    is_row[n] = row + 8 * n + g < p.num_rows;
    rows[n] = p.in + int64_t{is_row[n] ? row + 8 * n + g : row} * p.hidden_size;
  }
  float sums[kTiles][4] = {}, squares[kTiles] = {};
  const int num_steps = (p.hidden_size + 31) / 32;
  const int begin = slice * num_steps / split.depth * 32,
            end = min((slice + 1) * num_steps / split.depth * 32, p.hidden_size);
  for (int first = begin + warp * 32; first < end; first += kAtOnce * 32 * kRouteWarps) {
    uint4 low[kAtOnce], high[kAtOnce], weights[kAtOnce], x[kAtOnce][kTiles];
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
      const int column = first + s * 32 * kRouteWarps + 8 * t;
      low[s] = high[s] = weights[s] = {};
      if (column >= end) continue;
      low[s] = __ldg(reinterpret_cast<const uint4*>(low_router + column));
      high[s] = __ldg(reinterpret_cast<const uint4*>(high_router + column));
      if constexpr (kNorms)
        weights[s] = __ldg(reinterpret_cast<const uint4*>(p.norm_weight + column));
    }
    if (waits_for_previous) {
      WaitForPrevious();
      waits_for_previous = false;
    }
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
      const int column = first + s * 32 * kRouteWarps + 8 * t;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        x[s][n] = {};
        if (column < end && is_row[n]) x[s][n] = *reinterpret_cast<const uint4*>(rows[n] + column);
      }
    }
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        uint4 b = x[s][n];
        if constexpr (kNorms) b = Weigh(b, weights[s], squares[n]);
        MatrixMultiplyAdd(sums[n], low[s].x, high[s].x, low[s].y, high[s].y, b.x, b.y);
        MatrixMultiplyAdd(sums[n], low[s].z, high[s].z, low[s].w, high[s].w, b.z, b.w);
      }
    }
  }
  __syncthreads();  // the parts of the previous experts have been read
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    auto& parts = shared.parts[warp];
    *reinterpret_cast<float2*>(&parts[g][8 * n + 2 * t]) = {sums[n][0], sums[n][1]};
    *reinterpret_cast<float2*>(&parts[g + 8][8 * n + 2 * t]) = {sums[n][2], sums[n][3]};
    if constexpr (kNorms) {
      squares[n] += __shfl_xor_sync(0xffffffffu, squares[n], 1);
      squares[n] += __shfl_xor_sync(0xffffffffu, squares[n], 2);
      if (t == 0) shared.squares[warp][8 * n + g] = squares[n];
    }
  }
  __syncthreads();
  const int at_expert = threadIdx.x / kRouteRows, at_row = threadIdx.x % kRouteRows;
  const int64_t row_of_slice = int64_t{slice} * p.num_rows + row + at_row;
  if (row + at_row >= p.num_rows) return;
  float sum = 0.0f, square = 0.0f;
#pragma unroll
  for (int w = 0; w < kRouteWarps; ++w) sum += shared.parts[w][at_expert][at_row];
  if (expert + at_expert < p.num_experts)
    p.scores[row_of_slice * p.num_experts + expert + at_expert] = sum;
  if (kNorms && at_expert == 0 && expert == 0) {
#pragma unroll
    for (int w = 0; w < kRouteWarps; ++w) square += shared.squares[w][at_row];
    split.squares[row_of_slice] = square;
  }
}

// The warps share the rows. The squares have been summed.
__device__ __forceinline__ void StoreNormed(const RouteParams& p, const RouteSplit& split,
                                            int first_row, int num_rows, int warp, int num_warps) {
  const int chunks = p.hidden_size / 8, lane = threadIdx.x % 32;
  const int warps_a_row = max(1, num_warps / num_rows);
  for (int at = warp; at < num_rows * warps_a_row; at += num_warps) {
    const int row = at / warps_a_row;
    const int64_t offset = int64_t{first_row + row} * chunks;
    const float factor = NormFactor(p, split, first_row + row);
#pragma unroll 4
    for (int i = at % warps_a_row * 32 + lane; i < chunks; i += 32 * warps_a_row) {
      float values[8], weights[8];
      Unpack8(reinterpret_cast<const uint4*>(p.in)[offset + i], values);
      Unpack8(reinterpret_cast<const uint4*>(p.norm_weight)[i], weights);
#pragma unroll
      for (int j = 0; j < 8; ++j) values[j] *= factor * weights[j];
      reinterpret_cast<uint4*>(p.normed)[offset + i] = Pack8(values);
    }
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::route
