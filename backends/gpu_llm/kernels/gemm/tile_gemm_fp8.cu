#include "backends/gpu_llm/kernels/gemm/tile_gemm.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

cudaError_t TileGemmFp8(const TileGemmParams& params, cudaStream_t stream) {
  return params.weights.block_scales != nullptr
             ? tile_gemm::LaunchRows<WeightFormat::kFp8, 2>(params, stream)
             : tile_gemm::LaunchRows<WeightFormat::kFp8>(params, stream);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
