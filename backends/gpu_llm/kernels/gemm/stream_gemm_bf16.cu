// The stream GEMM for bf16 weights.
#include "backends/gpu_llm/kernels/gemm/stream_gemm.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

void StreamGemmBf16(const StreamGemmParams& params, int num_processors, cudaStream_t stream) {
  stream_gemm::LaunchFormat<WeightFormat::kBf16>(params, num_processors, stream);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
