// The fused decode step for fp8 weights.
#include "backends/gpu_llm/kernels/step/decode_step.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

bool DecodeStepFitsFp8(const DecodeStepSizes& sizes) {
  return decode_step::Fits<WeightFormat::kFp8>(sizes);
}
void DecodeStepFp8(const DecodeStepParams& params, int num_processors, cudaStream_t stream) {
  decode_step::LaunchFormat<WeightFormat::kFp8>(params, num_processors, stream);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
