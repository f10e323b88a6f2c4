// Copies the hidden states between layers of a fused decode step, which its launch leaves in the
// exchange buffer until the next launch.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"
#include "backends/gpu_llm/kernels/step/decode_step.h"

namespace nereid::gpu {

struct StepHiddenStatesParams {
  static constexpr int kMaxLayers = 8;

  DecodeStepParams step;  // of the launch before
  // The layers whose inputs are copied, up to num_layers of the step, which means its output. They
  // lie side by side in `out`.
  int layers[kMaxLayers];
  int num_layers;
  __nv_bfloat16* out;  // the first layer of the first row
  int64_t out_stride;  // from one row to the next
};

inline namespace NEREID_KERNEL_FORM {
void CopyStepHiddenStates(const StepHiddenStatesParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
