// Portable form of the kernels that only Hopper has so far. Callers ask the predicates first or,
// for several GPUs, refuse the model when it is loaded (kernel_form.cc), so that the other
// functions are not called.
#include "backends/gpu_llm/kernels/comm/all_reduce.h"
#include "backends/gpu_llm/kernels/step/decode_step.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

bool CanRunDecodeStep(const DecodeStepParams&, int) {
  return false;
}
void RunDecodeStep(const DecodeStepParams&, int, cudaStream_t) {}
cudaError_t TryDecodeStep(const DecodeStepParams&, int, cudaStream_t) {
  return cudaErrorNotSupported;
}

int64_t MaxOneShotElements() {
  return 0;
}
void AllReduce(const Peers&, int64_t, AllReduceTarget, AllReduceAlgorithm, cudaStream_t) {}
void AllReduceNorm(const Peers&, const AllReduceNormParams&, AllReduceAlgorithm, cudaStream_t) {}
void GatherLogits(const Peers&, const float*, int, int64_t, int64_t, int64_t, cudaStream_t) {}
void BroadcastTokens(const Peers&, int, cudaStream_t) {}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
