// Dispatches to the kernel of the weight format.
#include "backends/gpu_llm/kernels/gemm/stream_gemm.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

void StreamGemm(const StreamGemmParams& params, int num_processors, cudaStream_t stream) {
  switch (params.weights.format) {
    case WeightFormat::kBf16:
      return StreamGemmBf16(params, num_processors, stream);
    case WeightFormat::kFp8:
      return StreamGemmFp8(params, num_processors, stream);
    case WeightFormat::kInt4:
      return StreamGemmInt4(params, num_processors, stream);
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
