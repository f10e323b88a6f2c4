// The stream GEMM for fp8 weights.
#include "backends/gpu_llm/kernels/gemm/stream_gemm.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

void StreamGemmFp8(const StreamGemmParams& params, int num_processors, cudaStream_t stream) {
  stream_gemm::LaunchFormat<WeightFormat::kFp8>(params, num_processors, stream);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
