// Holds shared_bytes.h against the kernels' own sizes.
#include "backends/gpu_llm/kernels/attention/decode_attention.cuh"
#include "backends/gpu_llm/kernels/portable/shared_bytes.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

constexpr bool AllPartialsAgree() {
  for (const int head_dim : portable_shape::kHeadDims) {
    if (decode_attention::PartialsBytes(head_dim) != portable_shape::DecodePartialsBytes(head_dim))
      return false;
  }
  return true;
}
static_assert(AllPartialsAgree());
static_assert(decode_attention::kThreads == portable_shape::kDecodeThreads);

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
