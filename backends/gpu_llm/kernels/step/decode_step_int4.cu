// The fused decode step for a bf16 cache and int4 weights, with one group of 128 columns or more in
// a block.
#include "backends/gpu_llm/kernels/step/decode_step.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

template struct StepKernels<WeightFormat::kInt4, CacheFormat::kBf16>;

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
