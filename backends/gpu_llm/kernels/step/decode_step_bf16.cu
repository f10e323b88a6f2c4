// The fused decode step for bf16 weights.
#include "backends/gpu_llm/kernels/step/decode_step.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

bool DecodeStepFitsBf16(const DecodeStepSizes& sizes) {
  return decode_step::Fits<WeightFormat::kBf16>(sizes);
}
void DecodeStepBf16(const DecodeStepParams& params, int num_processors, cudaStream_t stream) {
  decode_step::LaunchFormat<WeightFormat::kBf16>(params, num_processors, stream);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
