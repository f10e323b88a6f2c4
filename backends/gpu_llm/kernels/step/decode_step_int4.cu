// The fused decode step for int4 weights, with one group of 128 columns or more in a block.
#include "backends/gpu_llm/kernels/step/decode_step.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

bool DecodeStepFitsInt4(const DecodeStepSizes& sizes) {
  return decode_step::Fits<WeightFormat::kInt4>(sizes);
}
void DecodeStepInt4(const DecodeStepParams& params, int num_processors, cudaStream_t stream) {
  decode_step::LaunchFormat<WeightFormat::kInt4>(params, num_processors, stream);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
