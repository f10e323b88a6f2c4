#include "backends/gpu_llm/kernels/gemm/tile_gemm.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

cudaError_t TileGemmInt4(const TileGemmParams& params, cudaStream_t stream) {
  constexpr WeightFormat kFormat = WeightFormat::kInt4;
  return params.weights.scales_per_block == 1 ? tile_gemm::LaunchRows<kFormat>(params, stream)
                                              : tile_gemm::LaunchRows<kFormat, 4>(params, stream);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
