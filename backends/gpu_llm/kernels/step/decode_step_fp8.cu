// The fused decode step for a bf16 cache and fp8 weights.
#include "backends/gpu_llm/kernels/step/decode_step.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

template struct StepKernels<WeightFormat::kFp8, CacheFormat::kBf16>;

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
