// Portable form of the kernels that only Hopper has so far. A model on several GPUs is refused when
// it is loaded (kernel_form.cc), so that these functions are not called.
#include "backends/gpu_llm/kernels/comm/all_reduce.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

int64_t MaxOneShotElements() {
  return 0;
}
void AllReduce(const Peers&, int64_t, AllReduceTarget, AllReduceAlgorithm, cudaStream_t) {}
void AllReduceNorm(const Peers&, const AllReduceNormParams&, AllReduceAlgorithm, cudaStream_t) {}
void GatherLogits(const Peers&, const float*, int, int64_t, int64_t, int64_t, cudaStream_t) {}
void BroadcastTokens(const Peers&, int, cudaStream_t) {}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
