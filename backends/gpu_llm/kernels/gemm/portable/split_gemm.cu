// The split-K GEMM as a launch of the tile GEMM. The row tile follows the number of rows; the depth
// is split where the tiles alone leave multiprocessors idle.
#include "backends/gpu_llm/kernel_registry.h"
#include "backends/gpu_llm/kernels/gemm/portable/tile_gemm.h"
#include "backends/gpu_llm/kernels/portable/tile_gemm_shape.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

using portable_shape::TileGemmShape;

struct DeviceLimits {
  int num_processors = 1, processor_shared_bytes = 0;
};
DeviceLimits LimitsOfDevice() {
  int device = 0;
  DeviceLimits limits;
  (void)cudaGetDevice(&device);
  (void)cudaDeviceGetAttribute(&limits.num_processors, cudaDevAttrMultiProcessorCount, device);
  (void)cudaDeviceGetAttribute(&limits.processor_shared_bytes,
                               cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
  return limits;
}

}  // namespace

cudaError_t SplitGemm(const SplitGemmParams& params, cudaStream_t stream) {
  TileGemmParams gemm = {};
  gemm.weights = params.weights;
  gemm.in = static_cast<const __nv_bfloat16*>(params.in);
  gemm.num_rows = params.num_rows;
  gemm.tile_rows = SplitGemmTile(KernelForm::kPortable, params.num_rows);
  gemm.num_row_tiles = (params.num_rows + gemm.tile_rows - 1) / gemm.tile_rows;
  gemm.out = params.out;
  gemm.output = params.output;
  gemm.num_slices = params.split > 0 ? params.split : 1;
  gemm.scratch = params.scratch;
  gemm.part_warps = portable_shape::SplitPartWarps(gemm.tile_rows);
  const TileGemmShape shape =
      portable_shape::TileGemmShapeOf(params.weights.format, gemm.tile_rows, gemm.part_warps);
  const int num_outputs = (params.weights.num_outputs + shape.outputs() - 1) / shape.outputs();
  const int64_t num_tiles = int64_t{gemm.num_row_tiles} * num_outputs;
  const auto fits = [&](int split) {
    return params.scratch.partials != nullptr && num_tiles <= kMaxSplitTickets &&
           split * num_tiles * shape.rows * shape.outputs() <= params.scratch.num_partials;
  };
  if (params.split == 0) {
    const DeviceLimits limits = LimitsOfDevice();
    gemm.num_slices = portable_shape::BestSplit(
        shape, num_tiles, params.weights.depth, limits.num_processors,
        limits.processor_shared_bytes, kMaxSplit, params.scratch.num_partials);
    if (gemm.num_slices > 1 && !fits(gemm.num_slices)) gemm.num_slices = 1;
  } else if (gemm.num_slices > 1 && !fits(gemm.num_slices)) {
    return cudaErrorInvalidValue;
  }
  return TileGemm(gemm, stream);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
