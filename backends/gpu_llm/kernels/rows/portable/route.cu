// Routing in two kernels. The blocks for 16 rows share the experts and the depth, and write partial
// scores; then a block selects the experts of four rows and stores the normed rows, and the last
// block sorts the pairs. Bound by latency.
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/rows/route.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

using namespace route;

constexpr int kSelectRows = 4;  // of a block

// Grid: the blocks of a RouteSplit, then groups of kRouteRows rows.
template <bool kNorms>
__global__ void __launch_bounds__(kRouteThreads) ScoreRowsKernel(RouteParams p, RouteSplit split) {
  __shared__ RouteShared shared;
  LaunchNext();
  const int rank = static_cast<int>(blockIdx.x), first_row = blockIdx.y * kRouteRows;
  const int first_expert = rank % split.experts * kRouteExperts;
  for (int expert = first_expert; expert < p.num_experts; expert += split.experts * kRouteExperts) {
    ScoreRows<kNorms>(p, split, rank / split.experts, first_row, expert, expert == first_expert,
                      shared);
  }
  WaitForPrevious();  // the warps that have had no columns
}

// Grid: groups of kSelectRows rows.
template <bool kNorms, int kLaneExperts>
__global__ void __launch_bounds__(kRouteThreads)
    SelectRowsKernel(RouteParams p, RouteSplit split, SortPairsParams sort, int32_t* ticket,
                     bool sorts) {
  __shared__ bool is_last;
  LaunchNext();
  WaitForPrevious();
  const int first_row = blockIdx.x * kSelectRows, warp = threadIdx.x / 32;
  const int num_rows = min(kSelectRows, p.num_rows - first_row);
  if (warp < num_rows) route::SelectExperts<kNorms, kLaneExperts>(p, split, first_row + warp);
  if constexpr (kNorms) StoreNormed(p, split, first_row, num_rows, warp, kRouteWarps);
  if (!sorts) return;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicAdd(ticket, 1) == static_cast<int>(gridDim.x) - 1;
    if (is_last) *ticket = 0;
    __threadfence();
  }
  __syncthreads();
  if (is_last) SortPairsInBlock(sort);
}

}  // namespace

cudaError_t Route(const RouteParams& params, const SortPairsParams& sort, int32_t* ticket,
                  cudaStream_t stream) {
  if (params.num_rows == 0) return cudaSuccess;
  const RouteSplit split = SplitRoute(params);
  const bool sorts = sort.pairs != nullptr && sort.num_pairs <= kMaxRouteSort;
  const dim3 score_grid(split.num_blocks(), (params.num_rows + kRouteRows - 1) / kRouteRows);
  const int select_grid = (params.num_rows + kSelectRows - 1) / kSelectRows;
  const auto launch = [&](auto score, auto select) {
    Launch(score, score_grid, kRouteThreads, 0, stream, params, split);
    Launch(select, select_grid, kRouteThreads, 0, stream, params, split, sort, ticket, sorts);
  };
  constexpr int kFewLaneExperts = kFewExperts / 32, kMostLaneExperts = kMaxExperts / 32;
  const bool is_few = params.num_experts <= kFewExperts;
  if (params.norm_weight != nullptr) {
    is_few ? launch(ScoreRowsKernel<true>, SelectRowsKernel<true, kFewLaneExperts>)
           : launch(ScoreRowsKernel<true>, SelectRowsKernel<true, kMostLaneExperts>);
  } else {
    is_few ? launch(ScoreRowsKernel<false>, SelectRowsKernel<false, kFewLaneExperts>)
           : launch(ScoreRowsKernel<false>, SelectRowsKernel<false, kMostLaneExperts>);
  }
  if (sort.pairs != nullptr && !sorts) SortPairs(sort, stream);
  return cudaGetLastError();
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
