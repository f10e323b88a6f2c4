// Dispatches to the kernel of the weight format.
#include "backends/gpu_llm/kernels/gemm/stream_experts.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

cudaError_t StreamExperts(const StreamExpertsParams& params, int num_processors,
                          cudaStream_t stream) {
  return params.weights.format == WeightFormat::kInt4
             ? stream_experts::StreamInt4(params, num_processors, stream)
             : stream_experts::StreamBf16(params, num_processors, stream);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
