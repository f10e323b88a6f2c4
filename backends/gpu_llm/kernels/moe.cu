// Small against the grouped products between them. Nothing depends on which rows stand together.
#include "gpu_llm/kernels/device.cuh"
#include "gpu_llm/kernels/launch.h"
#include "gpu_llm/kernels/moe.h"

namespace nereid::gpu {
namespace {

constexpr int kRouteThreads = 256;
constexpr int kSortThreads = 1024;
constexpr int kCombineThreads = 256;

// One block of threads a row, one warp an expert at a time; then the first warp picks.
__global__ void __launch_bounds__(kRouteThreads) RouteKernel(RouteParams p) {
  __shared__ float scores[kMaxExperts];
  LaunchNext();
  WaitForPrevious();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t row = blockIdx.x;
  const int chunks = p.hidden_size / 8;
  const uint4* in = reinterpret_cast<const uint4*>(p.in + row * p.hidden_size);
  for (int expert = warp; expert < p.num_experts; expert += kRouteThreads / 32) {
    const uint4* weights =
        reinterpret_cast<const uint4*>(p.router + int64_t{expert} * p.hidden_size);
    float sum = 0.0f;
    for (int i = lane; i < chunks; i += 32) {
      float a[8], b[8];
      Unpack8(in[i], a);
      Unpack8(weights[i], b);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum += a[j] * b[j];
    }
    sum = WarpSum(sum);
    if (lane == 0) scores[expert] = sum == sum ? sum : kNegativeInfinity;
  }
  __syncthreads();
  if (warp != 0) return;
  float all = 0.0f, chosen = 0.0f, first_score = 0.0f, own_score = 0.0f;
  int32_t own_expert = 0;
  for (int rank = 0; rank < p.experts_per_token; ++rank) {
    float best = kNegativeInfinity;
    int32_t at = INT32_MAX;
    for (int expert = lane; expert < p.num_experts; expert += 32) {
      const float score = scores[expert];
      if (score > best) best = score, at = expert;
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
      for (int expert = lane; expert < p.num_experts; expert += 32)
        all += __expf(scores[expert] - first_score);
      all = WarpSum(all);
    }
    const float weight = __expf(best - first_score);
    chosen += weight;
    if (lane == rank) own_score = weight, own_expert = at;
    __syncwarp();
    if (lane == 0) scores[at] = kNegativeInfinity;
    __syncwarp();
  }
  if (lane >= p.experts_per_token) return;
  const int64_t pair = row * p.experts_per_token + lane;
  p.experts[pair] = own_expert;
  p.shares[pair] = own_score / (p.normalizes ? chosen : all);
}

// One block of threads. The order of an expert's pairs is any: each is computed by itself.
__global__ void __launch_bounds__(kSortThreads) SortPairsKernel(SortPairsParams p) {
  __shared__ int32_t counts[kMaxExperts], next[kMaxExperts], first_tiles[kMaxExperts];
  __shared__ int32_t num_tiles;
  LaunchNext();
  WaitForPrevious();
  for (int i = threadIdx.x; i < p.num_experts; i += kSortThreads) counts[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < p.num_pairs; i += kSortThreads) atomicAdd(&counts[p.experts[i]], 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t place = 0, tile = 0;
    for (int expert = 0; expert < p.num_experts; ++expert) {
      next[expert] = place;
      first_tiles[expert] = tile;
      place += counts[expert];
      tile += (counts[expert] + p.tile_rows - 1) / p.tile_rows;
    }
    num_tiles = tile;
  }
  __syncthreads();
  for (int expert = threadIdx.x; expert < p.num_experts; expert += kSortThreads) {
    for (int32_t done = 0, tile = first_tiles[expert]; done < counts[expert];
         done += p.tile_rows, ++tile) {
      p.tiles[tile] = {expert, next[expert] + done, min(p.tile_rows, counts[expert] - done)};
    }
  }
  for (int tile = num_tiles + static_cast<int>(threadIdx.x); tile < p.num_tiles;
       tile += kSortThreads) {
    p.tiles[tile] = {-1, 0, 0};
  }
  __syncthreads();
  for (int i = threadIdx.x; i < p.num_pairs; i += kSortThreads) {
    const int32_t place = atomicAdd(&next[p.experts[i]], 1);
    p.pairs[place] = i;
    p.places[i] = place;
  }
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
  Launch(RouteKernel, params.num_rows, kRouteThreads, 0, stream, params);
}

void SortPairs(const SortPairsParams& params, cudaStream_t stream) {
  Launch(SortPairsKernel, 1, kSortThreads, 0, stream, params);
}

void Combine(const CombineParams& params, cudaStream_t stream) {
  Launch(CombineKernel, params.num_rows, kCombineThreads, 0, stream, params);
}

}  // namespace nereid::gpu
