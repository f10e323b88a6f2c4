// The experts' GEMMs as launches of the tile GEMM.
#include "backends/gpu_llm/kernel_registry.h"
#include "backends/gpu_llm/kernels/gemm/expert_gemm.h"
#include "backends/gpu_llm/kernels/gemm/stream_experts.h"
#include "backends/gpu_llm/kernels/gemm/tile_gemm.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

cudaError_t StreamExperts(const StreamExpertsParams& params, int, cudaStream_t stream) {
  return TileExperts(params, stream);
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
