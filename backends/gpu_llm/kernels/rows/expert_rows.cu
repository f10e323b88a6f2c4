// Two kernels. The first counts the pairs of each expert: a block of threads counts its pairs in
// shared memory and reserves places for them. In the second, a warp copies a row to the places of
// its pairs, so that a row is read once. Bound by writing the copies.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/rows/expert_rows.h"
#include "backends/gpu_llm/kernels/rows/moe.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kCountThreads = 256, kThreadPairs = 4;
constexpr int kCopyWarps = 8, kCopyThreads = 32 * kCopyWarps;

// sorted_index becomes the position among the pairs of the same expert.
__global__ void __launch_bounds__(kCountThreads) CountPairsKernel(ExpertRowsParams p) {
  __shared__ int32_t counts[kMaxExperts];
  LaunchNext();
  for (int i = threadIdx.x; i < p.num_experts; i += kCountThreads) counts[i] = 0;
  WaitForPrevious();
  __syncthreads();
  const int num_pairs = p.num_rows * p.experts_per_token;
  const int first = blockIdx.x * (kCountThreads * kThreadPairs) + threadIdx.x;
  int32_t experts[kThreadPairs], places[kThreadPairs];
#pragma unroll
  for (int i = 0; i < kThreadPairs; ++i) {
    const int pair = first + i * kCountThreads;
    if (pair >= num_pairs) break;
    experts[i] = p.experts[pair];
    places[i] = atomicAdd(&counts[experts[i]], 1);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < p.num_experts; i += kCountThreads) {
    if (counts[i] > 0) counts[i] = atomicAdd(&p.counts[i], counts[i]);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kThreadPairs; ++i) {
    const int pair = first + i * kCountThreads;
    if (pair >= num_pairs) break;
    p.sorted_index[pair] = counts[experts[i]] + places[i];
  }
}

// Writes the position of each expert's first pair to `first_rows`, which has kMaxExperts + 1
// elements in shared memory. Called by a block of threads.
__device__ void SumCounts(const int32_t* counts, int num_experts, int32_t* first_rows) {
  if (threadIdx.x < 32) {  // a lane has consecutive experts
    const int lane = threadIdx.x, each = (num_experts + 31) / 32;
    const int first = lane * each, last = min(num_experts, first + each);
    int32_t sum = 0;
    for (int expert = first; expert < last; ++expert) sum += __ldcg(counts + expert);
    int32_t before = sum;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int32_t other = __shfl_up_sync(0xffffffffu, before, distance);
      if (lane >= distance) before += other;
    }
    if (lane == 31) first_rows[num_experts] = before;
    before -= sum;
    for (int expert = first; expert < last; ++expert) {
      first_rows[expert] = before;
      before += __ldcg(counts + expert);
    }
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kCopyThreads) CopyRowsKernel(ExpertRowsParams p) {
  __shared__ int32_t first_rows[kMaxExperts + 1];
  __shared__ bool is_last;
  LaunchNext();
  WaitForPrevious();
  SumCounts(p.counts, p.num_experts, first_rows);
  if (threadIdx.x == 0) {
    is_last = atomicAdd(p.counts + p.num_experts, 1) == static_cast<int>(gridDim.x) - 1;
  }
  __syncthreads();
  if (is_last) {  // all blocks have read the counts
    for (int i = threadIdx.x; i <= p.num_experts; i += kCopyThreads) {
      p.counts[i] = 0;
      p.first_rows[i] = first_rows[i];
    }
  }
  const int row = blockIdx.x * kCopyWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= p.num_rows) return;
  const int chunks = p.row_bytes / 16;
  int32_t place = 0;  // of pair `lane` of this row
  if (lane < p.experts_per_token) {
    const int64_t pair = int64_t{row} * p.experts_per_token + lane;
    place = first_rows[p.experts[pair]] + p.sorted_index[pair];
    p.sorted_index[pair] = place;
    if (p.in_scales != nullptr) p.out_scales[place] = p.in_scales[row];
  }
  const uint4* from = static_cast<const uint4*>(p.in) + int64_t{row} * chunks;
  uint4* to = static_cast<uint4*>(p.out);
  constexpr int kAtOnce = 4;
  for (int first = lane; first - lane < chunks; first += 32 * kAtOnce) {
    uint4 values[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + 32 * i < chunks) values[i] = from[first + 32 * i];
    }
    for (int rank = 0; rank < p.experts_per_token; ++rank) {
      uint4* row_to = to + int64_t{__shfl_sync(0xffffffffu, place, rank)} * chunks;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + 32 * i < chunks) row_to[first + 32 * i] = values[i];
      }
    }
  }
}

}  // namespace

void SortExpertRows(const ExpertRowsParams& params, cudaStream_t stream) {
  const int num_pairs = params.num_rows * params.experts_per_token;
  constexpr int kBlockPairs = kCountThreads * kThreadPairs;
  Launch(CountPairsKernel, (num_pairs + kBlockPairs - 1) / kBlockPairs, kCountThreads, 0, stream,
         params);
  Launch(CopyRowsKernel, (params.num_rows + kCopyWarps - 1) / kCopyWarps, kCopyThreads, 0, stream,
         params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
