// Routing: a cluster of blocks for 16 rows computes their scores, selects their experts and stores
// the normed rows; the last cluster sorts the pairs. Bound by latency. Qwen3-30B-A3B on an H100, 1,
// 8, 64 and 256 rows: 8, 8, 10 and 14 us with the norm.
#include "backends/gpu_llm/kernels/rows/route.cuh"

#include "backends/gpu_llm/kernels/device/cluster.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

using namespace route;

// With more rows than this there are more clusters of blocks than fit on the GPU's multiprocessors
// with one block on each. The kernel is then compiled so that two blocks share a multiprocessor.
constexpr int kSpreadRows = 128;

// Grid: a cluster for kRouteRows rows, whose blocks share the experts and the depth, then the rows.
// With `sorts` the last cluster to finish sorts the pairs.
template <bool kNorms, int kLaneExperts, int kBlocks>
__global__ void __launch_bounds__(kRouteThreads, kBlocks)
    RouteKernel(RouteParams p, RouteSplit split, SortPairsParams sort, int32_t* ticket,
                bool sorts) {
  __shared__ RouteShared shared;
  LaunchNext();
  const int cluster = split.num_blocks();
  const int rank = static_cast<int>(blockIdx.x) % cluster;
  const int first_row = static_cast<int>(blockIdx.x) / cluster * kRouteRows;
  const int num_rows = min(kRouteRows, p.num_rows - first_row);
  const int first_expert = rank % split.experts * kRouteExperts;
  for (int expert = first_expert; expert < p.num_experts; expert += split.experts * kRouteExperts) {
    ScoreRows<kNorms, 8 / kBlocks>(p, split, rank / split.experts, first_row, expert,
                                   expert == first_expert, shared);
  }
  WaitForPrevious();  // the warps that have had no columns
  __syncwarp();
  ClusterArrive();
  ClusterWait();
  const int warp = rank * kRouteWarps + static_cast<int>(threadIdx.x) / 32;
  const int num_warps = cluster * kRouteWarps;
  for (int row = warp; row < num_rows; row += num_warps)
    SelectExperts<kNorms, kLaneExperts>(p, split, first_row + row);
  __syncwarp();
  ClusterArrive();
  if constexpr (kNorms) {  // by the other blocks, if there are some: the first one sorts
    const int first_warp = cluster > 1 ? kRouteWarps : 0;
    if (warp >= first_warp)
      StoreNormed(p, split, first_row, num_rows, warp - first_warp, num_warps - first_warp);
  }
  __syncwarp();
  ClusterWait();
  if (!sorts || rank != 0) return;
  const int num_clusters = static_cast<int>(gridDim.x) / cluster;
  if (num_clusters > 1) {
    if (threadIdx.x == 0) {
      __threadfence();
      shared.is_last = atomicAdd(ticket, 1) == num_clusters - 1;
      if (shared.is_last) *ticket = 0;
      __threadfence();
    }
    __syncthreads();
    if (!shared.is_last) return;
  }
  SortPairsInBlock(sort);
}

}  // namespace

cudaError_t Route(const RouteParams& params, const SortPairsParams& sort, int32_t* ticket,
                  cudaStream_t stream) {
  if (params.num_rows == 0) return cudaSuccess;
  const RouteSplit split = SplitRoute(params);
  const int cluster = split.num_blocks();
  const int num_blocks = (params.num_rows + kRouteRows - 1) / kRouteRows * cluster;
  const bool sorts = sort.pairs != nullptr && sort.num_pairs <= kMaxRouteSort;
  const auto launch = [&]<int kLaneExperts, int kBlocks>() {
    const auto kernel = params.norm_weight != nullptr ? RouteKernel<true, kLaneExperts, kBlocks>
                                                      : RouteKernel<false, kLaneExperts, kBlocks>;
    LaunchInClusters(kernel, cluster, num_blocks, kRouteThreads, stream, params, split, sort,
                     ticket, sorts);
  };
  constexpr int kFewLaneExperts = kFewExperts / 32, kMostLaneExperts = kMaxExperts / 32;
  const bool is_few = params.num_experts <= kFewExperts;
  if (params.num_rows <= kSpreadRows) {
    is_few ? launch.template operator()<kFewLaneExperts, 1>()
           : launch.template operator()<kMostLaneExperts, 1>();
  } else {
    is_few ? launch.template operator()<kFewLaneExperts, 2>()
           : launch.template operator()<kMostLaneExperts, 2>();
  }
  if (sort.pairs != nullptr && !sorts) SortPairs(sort, stream);
  return cudaGetLastError();
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
