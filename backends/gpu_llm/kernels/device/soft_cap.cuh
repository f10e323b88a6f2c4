// Soft caps of scores and logits. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

// cap * tanh(score / cap), to about 1e-7 of the cap.
__device__ __forceinline__ float SoftCapped(float score, float cap) {
  return cap - __fdividef(2.0f * cap, __expf(__fdividef(2.0f * score, cap)) + 1.0f);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
