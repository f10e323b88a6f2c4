// The tile GEMM by format of the weights, and products of few rows of each expert as launches of
// it.
#include "backends/gpu_llm/kernels/gemm/stream_experts.h"
#include "backends/gpu_llm/kernels/gemm/tile_gemm.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

cudaError_t TileGemm(const TileGemmParams& params, cudaStream_t stream) {
  if (params.num_row_tiles == 0) return cudaSuccess;
  switch (params.weights.format) {
    case WeightFormat::kBf16:
      return TileGemmBf16(params, stream);
    case WeightFormat::kFp8:
      return TileGemmFp8(params, stream);
    case WeightFormat::kInt4:
      return TileGemmInt4(params, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t TileExperts(const StreamExpertsParams& params, cudaStream_t stream) {
  const GroupedGemmParams& from = params.gemm;
  TileGemmParams gemm = {};
  gemm.weights = params.weights;
  gemm.stride_bytes = params.stride_bytes;
  gemm.scale_stride = params.stride_bytes / 4;  // the scales lie behind each matrix
  gemm.in = from.in;
  gemm.pairs = from.pairs;
  gemm.pairs_per_row = from.pairs_per_row;
  gemm.tiles = from.tiles;
  gemm.num_row_tiles = from.num_tiles;
  gemm.tile_rows = from.tile_rows;
  gemm.out = from.out;
  gemm.output = from.gates ? GemmEpilogue::kSiluGate : GemmEpilogue::kBf16;
  gemm.num_slices = 1;
  return TileGemm(gemm, stream);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
