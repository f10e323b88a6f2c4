// Holds shared_bytes.h and decode_step_shape.h against the kernels' own sizes.
#include "backends/gpu_llm/kernels/attention/decode_attention.cuh"
#include "backends/gpu_llm/kernels/attention/unpack_block.cuh"
#include "backends/gpu_llm/kernels/portable/shared_bytes.h"
#include "backends/gpu_llm/kernels/step/decode_step_state.cuh"

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
static_assert(kUnpackThreads == portable_shape::kUnpackThreads);
static_assert(decode_step::kStateBytes <= portable_shape::kStepStateBytes);
static_assert(decode_step::kThreads == portable_shape::kStepThreads);

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
