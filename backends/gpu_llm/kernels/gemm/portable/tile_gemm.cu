// The tile GEMM by format of the weights, and the experts' GEMMs as launches of it.
#include "backends/gpu_llm/kernels/gemm/portable/tile_gemm.h"

#include "backends/gpu_llm/kernel_registry.h"
#include "backends/gpu_llm/kernels/gemm/expert_gemm.h"
#include "backends/gpu_llm/kernels/gemm/stream_experts.h"

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

cudaError_t StreamExperts(const StreamExpertsParams& params, int, cudaStream_t stream) {
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

cudaError_t ExpertGemm(const ExpertGemmParams& params, int, cudaStream_t stream) {
  TileGemmParams gemm = {};
  gemm.weights = params.weights;
  gemm.stride_bytes = params.stride_bytes;
  gemm.scale_stride = params.scale_stride;
  gemm.in = static_cast<const __nv_bfloat16*>(params.in);
  gemm.first_rows = params.first_rows;
  gemm.num_experts = params.num_experts;
  gemm.num_rows = params.num_rows;
  gemm.tile_rows = ExpertGemmTile(KernelForm::kPortable, params.num_rows, params.num_experts);
  gemm.num_row_tiles =
      params.first_rows != nullptr
          ? static_cast<int>(MaxExpertTiles(params.num_rows, params.num_experts, gemm.tile_rows))
          : (params.num_rows + gemm.tile_rows - 1) / gemm.tile_rows;
  gemm.out = params.out;
  gemm.output = params.output;
  gemm.num_slices = 1;
  return TileGemm(gemm, stream);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
