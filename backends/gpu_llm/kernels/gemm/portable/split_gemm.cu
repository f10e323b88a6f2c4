// The split-K GEMM as a launch of the tile GEMM.
#include "backends/gpu_llm/kernels/gemm/tile_gemm.h"
#include "backends/gpu_llm/kernels/gemm/tile_gemm_shape.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

int NumProcessors() {
  int device = 0, count = 1;
  (void)cudaGetDevice(&device);
  (void)cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

}  // namespace

cudaError_t SplitGemm(const SplitGemmParams& params, cudaStream_t stream) {
  const WeightMatrix& weights = params.weights;
  const SplitScratch& scratch = params.scratch;
  const int64_t max_partials = scratch.partials != nullptr ? scratch.num_partials : 0;
  const tile_gemm_shape::SplitPlan plan = tile_gemm_shape::PlanSplit(
      weights.format, weights.scales_per_block, params.num_rows, weights.num_outputs, weights.depth,
      NumProcessors(), kMaxSplit, max_partials);
  const tile_gemm_shape::TileGemmShape shape = tile_gemm_shape::TileGemmShapeOf(plan.of);
  TileGemmParams gemm = {};
  gemm.weights = weights;
  gemm.in = static_cast<const __nv_bfloat16*>(params.in);
  gemm.num_rows = params.num_rows;
  gemm.tile_rows = shape.rows;
  gemm.num_row_tiles = (params.num_rows + shape.rows - 1) / shape.rows;
  gemm.out = params.out;
  gemm.output = params.output;
  gemm.num_slices = params.split > 0 ? params.split : plan.num_slices;
  gemm.scratch = scratch;
  gemm.part_warps = shape.part_warps;
  const bool fits = plan.num_tiles <= kMaxSplitTickets &&
                    gemm.num_slices * plan.num_tiles * shape.rows * shape.outputs() <= max_partials;
  if (gemm.num_slices > 1 && !fits) {
    if (params.split > 0) return cudaErrorInvalidValue;
    gemm.num_slices = 1;
  }
  return TileGemm(gemm, stream);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
