// The stream GEMM for int4 weights.
#include "backends/gpu_llm/kernels/gemm/stream_gemm.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

void StreamGemmInt4(const StreamGemmParams& params, int num_processors, cudaStream_t stream) {
  stream_gemm::LaunchFormat<WeightFormat::kInt4>(params, num_processors, stream);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
