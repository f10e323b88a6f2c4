// Routing and combination for mixtures of experts. They are cheap compared to the grouped GEMM
// between them. A row's result does not depend on the other rows of the step. Qwen3-30B-A3B on an
// H200: routing takes 33 us for 64 rows (bound by latency: half a megabyte is read) and 43 us for
// 1,762 rows. Combining 8 experts of 1,762 rows reaches 56 % of the memory bandwidth; of 64 rows it
// takes 7 us.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/rows/moe.h"

namespace nereid::gpu {
namespace {

constexpr int kRouteWarps = 8, kRouteThreads = 32 * kRouteWarps;
constexpr int kSortThreads = 1024;
constexpr int kCombineThreads = 256;
constexpr int kLaneExperts = kMaxExperts / 32;

// Selects a row's experts with one warp. Lane l has the scores of experts l, l + 32, ...
__device__ void SelectExperts(const RouteParams& p, int64_t row) {
  const int lane = threadIdx.x % 32;
  float scores[kLaneExperts];
#pragma unroll
  for (int i = 0; i < kLaneExperts; ++i) {
    const int expert = i * 32 + lane;
    scores[i] = kNegativeInfinity;
    if (expert >= p.num_experts) continue;
    const float score = __ldcg(p.scores + row * p.num_experts + expert);
    if (score == score) scores[i] = score;
  }
  float all = 0.0f, chosen = 0.0f, first_score = 0.0f, own_score = 0.0f;
  int32_t own_expert = 0;
  for (int rank = 0; rank < p.experts_per_token; ++rank) {
    float best = kNegativeInfinity;
    int32_t at = INT32_MAX;
#pragma unroll
    for (int i = 0; i < kLaneExperts; ++i) {
      if (scores[i] > best) best = scores[i], at = i * 32 + lane;
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      const float other = __shfl_xor_sync(0xffffffffu, best, distance);
      const int32_t other_at = __shfl_xor_sync(0xffffffffu, at, distance);
      if (other > best || (other == best && other_at < at)) best = other, at = other_at;
    }
    if (at == INT32_MAX) at = rank;  // a padding row without valid scores: any expert will do
    if (rank == 0) {
      first_score = best;
#pragma unroll
      for (const float score : scores) all += __expf(score - first_score);
      all = WarpSum(all);
    }
    const float weight = __expf(best - first_score);
    chosen += weight;
    if (lane == rank) own_score = weight, own_expert = at;
#pragma unroll
    for (int i = 0; i < kLaneExperts; ++i) {
      if (i * 32 + lane == at) scores[i] = kNegativeInfinity;
    }
  }
  if (lane >= p.experts_per_token) return;
  const int64_t pair = row * p.experts_per_token + lane;
  p.experts[pair] = own_expert;
  p.router_weights[pair] = own_score / (p.normalizes ? chosen : all);
}

__global__ void __launch_bounds__(kRouteThreads) RouteKernel(RouteParams p) {
  LaunchNext();
  WaitForPrevious();
  const int64_t row = int64_t{blockIdx.x} * kRouteWarps + threadIdx.x / 32;
  if (row < p.num_rows) SelectExperts(p, row);
}

// Sorts the pairs by expert with one block of threads. The order of pairs of one expert is
// arbitrary, because each pair is computed independently.
__device__ void SortPairsInBlock(const SortPairsParams& p) {
  __shared__ int32_t counts[kMaxExperts], next[kMaxExperts], first_tiles[kMaxExperts];
  __shared__ int32_t num_tiles;
  const int num_threads = static_cast<int>(blockDim.x);
  for (int i = threadIdx.x; i < p.num_experts; i += num_threads) counts[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < p.num_pairs; i += num_threads) atomicAdd(&counts[p.experts[i]], 1);
  __syncthreads();
  if (threadIdx.x < 32) {  // prefix sums; a lane has consecutive experts
    const int each = (p.num_experts + 31) / 32, lane = threadIdx.x;
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
      next[expert] = pair_offset;
      first_tiles[expert] = tile;
      pair_offset += counts[expert];
      tile += (counts[expert] + p.tile_rows - 1) / p.tile_rows;
    }
  }
  __syncthreads();
  for (int expert = threadIdx.x; expert < p.num_experts; expert += num_threads) {
    for (int32_t done = 0, tile = first_tiles[expert]; done < counts[expert];
         done += p.tile_rows, ++tile) {
      p.tiles[tile] = {expert, next[expert] + done, min(p.tile_rows, counts[expert] - done)};
    }
  }
  for (int tile = num_tiles + static_cast<int>(threadIdx.x); tile < p.num_tiles;
       tile += num_threads) {
    p.tiles[tile] = {-1, 0, 0};
  }
  __syncthreads();
  for (int i = threadIdx.x; i < p.num_pairs; i += num_threads) {
    const int32_t pair_offset = atomicAdd(&next[p.experts[i]], 1);
    p.pairs[pair_offset] = i;
    p.sorted_index[i] = pair_offset;
  }
}

__global__ void __launch_bounds__(kSortThreads) SortPairsKernel(SortPairsParams p) {
  LaunchNext();
  WaitForPrevious();
  SortPairsInBlock(p);
}

// Grid: one block of threads for each expert, which computes its scores of all rows. The last block
// to finish selects the experts and sorts the pairs.
__global__ void __launch_bounds__(kRouteThreads) RouteFusedKernel(RouteFusedParams p) {
  __shared__ float parts[kRouteWarps][kMaxFusedRouteRows];
  __shared__ bool is_last;
  LaunchNext();
  const int chunks = p.hidden_size / 8, expert = blockIdx.x;
  const int num_rows = p.route.num_rows, num_experts = p.route.num_experts;
  const uint4* router = reinterpret_cast<const uint4*>(p.router + int64_t{expert} * p.hidden_size);
  const uint4* in = reinterpret_cast<const uint4*>(p.in);
  uint4 next = {};
  if (static_cast<int>(threadIdx.x) < chunks) next = router[threadIdx.x];
  WaitForPrevious();
  float sums[kMaxFusedRouteRows] = {};
  for (int i = threadIdx.x; i < chunks; i += kRouteThreads) {
    float weights[8];
    Unpack8(next, weights);
    if (i + kRouteThreads < chunks) next = router[i + kRouteThreads];
#pragma unroll
    for (int row = 0; row < kMaxFusedRouteRows; ++row) {
      if (row >= num_rows) break;
      float values[8];
      Unpack8(in[int64_t{row} * chunks + i], values);
#pragma unroll
      for (int j = 0; j < 8; ++j) sums[row] += values[j] * weights[j];
    }
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int row = 0; row < kMaxFusedRouteRows; ++row) {
    if (row >= num_rows) break;
    const float sum = WarpSum(sums[row]);
    if (lane == 0) parts[warp][row] = sum;
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < num_rows) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kRouteWarps; ++w) sum += parts[w][threadIdx.x];
    p.route.scores[int64_t{threadIdx.x} * num_experts + expert] = sum;
    __threadfence();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(p.ticket, 1) == num_experts - 1;
    if (is_last) *p.ticket = 0;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  for (int row = warp; row < num_rows; row += kRouteWarps) SelectExperts(p.route, row);
  __syncthreads();
  SortPairsInBlock(p.sort);
}

__global__ void __launch_bounds__(kCombineThreads) CombineKernel(CombineParams p) {
  LaunchNext();
  WaitForPrevious();
  const int chunks = p.hidden_size / 8;
  const int64_t row = blockIdx.x;
  for (int i = threadIdx.x; i < chunks; i += kCombineThreads) {
    float sum[8] = {};
    for (int rank = 0; rank < p.experts_per_token; ++rank) {
      const int64_t pair = row * p.experts_per_token + rank;
      const float share = p.router_weights[pair];
      float values[8];
      Unpack8(
          reinterpret_cast<const uint4*>(p.in + int64_t{p.sorted_index[pair]} * p.hidden_size)[i],
          values);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[j] += values[j] * share;
    }
    uint4* out = reinterpret_cast<uint4*>(p.out + row * p.hidden_size) + i;
    if (p.accumulates) {
      float before[8];
      Unpack8(*out, before);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[j] += before[j];
    }
    *out = Pack8(sum);
  }
}

}  // namespace

void Route(const RouteParams& params, cudaStream_t stream) {
  Launch(RouteKernel, (params.num_rows + kRouteWarps - 1) / kRouteWarps, kRouteThreads, 0, stream,
         params);
}

void SortPairs(const SortPairsParams& params, cudaStream_t stream) {
  Launch(SortPairsKernel, 1, kSortThreads, 0, stream, params);
}

void RouteFused(const RouteFusedParams& params, cudaStream_t stream) {
  if (params.route.num_rows == 0) return;
  Launch(RouteFusedKernel, params.route.num_experts, kRouteThreads, 0, stream, params);
}

void Combine(const CombineParams& params, cudaStream_t stream) {
  Launch(CombineKernel, params.num_rows, kCombineThreads, 0, stream, params);
}

}  // namespace nereid::gpu
