// Copies of hidden states: between lists of rows, and out of a fused decode step.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"
#include "backends/gpu_llm/kernels/step/decode_step.h"

namespace nereid::gpu {

// out[out_rows[i]] = in[in_rows[i]]. The lists may be in pinned host memory.
struct CopyRowsParams {
  const __nv_bfloat16* in;  // [.., row_size]
  const int32_t* in_rows;   // [num_rows]; null: the first num_rows. A negative row is not copied.
  __nv_bfloat16* out;       // rows of row_size, out_stride apart; other memory than `in`
  const int32_t* out_rows;  // like in_rows
  int num_rows, row_size;   // row_size: a multiple of 8
  int out_stride;           // likewise
  // The next kernel begins when all is copied: it may read the copy before it waits for this one.
  bool holds_next = false;
};

inline namespace NEREID_KERNEL_FORM {
void CopyRows(const CopyRowsParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

// The hidden states between layers of a fused decode step, which its launch leaves in the exchange
// buffer until the next launch.
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
