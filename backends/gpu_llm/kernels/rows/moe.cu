// Small against the grouped products between them. Nothing depends on which rows stand together.
// Qwen3-30B-A3B on an H200: routes of 64 rows take 33 us (latency: half a megabyte is read), of
// 1,762 rows 43; sums of 8 experts of 1,762 rows have 56 % of the memory's bandwidth, of 64 rows
// they take 7 us.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/rows/moe.h"

namespace nereid::gpu {
namespace {

constexpr int kRouteWarps = 8, kRouteThreads = 32 * kRouteWarps;
constexpr int kSortThreads = 1024;
constexpr int kCombineThreads = 256;
constexpr int kLaneExperts = kMaxExperts / 32;

// A warp picks a row's experts. Lane l has the scores of experts l, l + 32, ...
__device__ void PickExperts(const RouteParams& p, int64_t row) {
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
    if (at == INT32_MAX) at = rank;  // a row of nothing (padding): any will do
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
  p.shares[pair] = own_score / (p.normalizes ? chosen : all);
}

__global__ void __launch_bounds__(kRouteThreads) RouteKernel(RouteParams p) {
  LaunchNext();
  WaitForPrevious();
  const int64_t row = int64_t{blockIdx.x} * kRouteWarps + threadIdx.x / 32;
  if (row < p.num_rows) PickExperts(p, row);
}

// A block of threads. The order of an expert's pairs is any: each is computed by itself.
__device__ void SortAll(const SortPairsParams& p) {
  __shared__ int32_t counts[kMaxExperts], next[kMaxExperts], first_tiles[kMaxExperts];
  __shared__ int32_t num_tiles;
  const int num_threads = static_cast<int>(blockDim.x);
  for (int i = threadIdx.x; i < p.num_experts; i += num_threads) counts[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < p.num_pairs; i += num_threads) atomicAdd(&counts[p.experts[i]], 1);
  __syncthreads();
  if (threadIdx.x < 32) {  // sums of what lies before; a lane has neighbouring experts
    const int each = (p.num_experts + 31) / 32, lane = threadIdx.x;
    const int first = lane * each, last = min(p.num_experts, first + each);
    int32_t places = 0, tiles = 0;
    for (int expert = first; expert < last; ++expert) {
      places += counts[expert];
      tiles += (counts[expert] + p.tile_rows - 1) / p.tile_rows;
    }
    int32_t place = places, tile = tiles;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int32_t other_place = __shfl_up_sync(0xffffffffu, place, distance);
      const int32_t other_tile = __shfl_up_sync(0xffffffffu, tile, distance);
      if (lane >= distance) place += other_place, tile += other_tile;
    }
    if (lane == 31) num_tiles = tile;
    place -= places, tile -= tiles;
    for (int expert = first; expert < last; ++expert) {
      next[expert] = place;
      first_tiles[expert] = tile;
      place += counts[expert];
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
    const int32_t place = atomicAdd(&next[p.experts[i]], 1);
    p.pairs[place] = i;
    p.places[i] = place;
  }
}

__global__ void __launch_bounds__(kSortThreads) SortPairsKernel(SortPairsParams p) {
  LaunchNext();
  WaitForPrevious();
  SortAll(p);
}

// A block of threads an expert's scores of all rows; the last one to end picks and sorts.
__global__ void __launch_bounds__(kRouteThreads) RouteFewKernel(RouteFewParams p) {
  __shared__ float parts[kRouteWarps][kFewRoutedRows];
  __shared__ bool is_last;
  LaunchNext();
  const int chunks = p.hidden_size / 8, expert = blockIdx.x;
  const int num_rows = p.route.num_rows, num_experts = p.route.num_experts;
  const uint4* router = reinterpret_cast<const uint4*>(p.router + int64_t{expert} * p.hidden_size);
  const uint4* in = reinterpret_cast<const uint4*>(p.in);
  uint4 next = {};
  if (static_cast<int>(threadIdx.x) < chunks) next = router[threadIdx.x];
  WaitForPrevious();
  float sums[kFewRoutedRows] = {};
  for (int i = threadIdx.x; i < chunks; i += kRouteThreads) {
    float weights[8];
    Unpack8(next, weights);
    if (i + kRouteThreads < chunks) next = router[i + kRouteThreads];
#pragma unroll
    for (int row = 0; row < kFewRoutedRows; ++row) {
      if (row >= num_rows) break;
      float values[8];
      Unpack8(in[int64_t{row} * chunks + i], values);
#pragma unroll
      for (int j = 0; j < 8; ++j) sums[row] += values[j] * weights[j];
    }
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int row = 0; row < kFewRoutedRows; ++row) {
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
  for (int row = warp; row < num_rows; row += kRouteWarps) PickExperts(p.route, row);
  __syncthreads();
  SortAll(p.sort);
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
      const float share = p.shares[pair];
      float values[8];
      Unpack8(reinterpret_cast<const uint4*>(p.in + int64_t{p.places[pair]} * p.hidden_size)[i],
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

void RouteFew(const RouteFewParams& params, cudaStream_t stream) {
  if (params.route.num_rows == 0) return;
  Launch(RouteFewKernel, params.route.num_experts, kRouteThreads, 0, stream, params);
}

void Combine(const CombineParams& params, cudaStream_t stream) {
  Launch(CombineKernel, params.num_rows, kCombineThreads, 0, stream, params);
}

}  // namespace nereid::gpu
