// The fused decode step for a bf16 cache and bf16 weights.
#include "backends/gpu_llm/kernels/step/decode_step.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

template struct StepKernels<WeightFormat::kBf16, CacheFormat::kBf16>;

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
