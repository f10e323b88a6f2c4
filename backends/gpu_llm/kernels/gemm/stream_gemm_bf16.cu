// The stream GEMM for bf16 weights, and the launcher for all formats.
#include "backends/gpu_llm/kernels/gemm/stream_gemm.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

void StreamGemmBf16(const StreamGemmParams& params, int num_processors, cudaStream_t stream) {
  stream_gemm::LaunchFormat<WeightFormat::kBf16>(params, num_processors, stream);
}

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
