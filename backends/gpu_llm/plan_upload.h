// The copy of a plan from pinned host memory to the device, in front of the kernels that read it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>

#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/kernels/rows/hidden_states.h"
#include "nereid/status.h"

namespace nereid::gpu {

// A kernel copies up to so many bytes.
inline constexpr size_t kMaxKernelCopy = 8192;
// The copy is rounded up to this size, for which both buffers have room.
inline constexpr size_t kPlanCopyUnit = 16;

// Copies a plan on the stream, so that kernels launched later may read it. Small plans are copied
// by a kernel that reads the pinned memory, which takes a few microseconds; a copy by the device's
// copy engine takes longer, because the stream waits for it twice.
inline Status UploadPlan(void* to, const void* from, size_t size_bytes, cudaStream_t stream) {
  if (size_bytes > kMaxKernelCopy) {
    return CudaStatus(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyHostToDevice, stream),
                      "a plan");
  }
  const size_t units = (size_bytes + kPlanCopyUnit - 1) / kPlanCopyUnit;
  CopyRowsParams params = {};
  params.in = static_cast<const __nv_bfloat16*>(from);
  params.out = static_cast<__nv_bfloat16*>(to);
  params.num_rows = 1;
  params.row_size = params.out_stride =
      static_cast<int>(units * kPlanCopyUnit / sizeof(__nv_bfloat16));
  params.holds_next = true;
  CopyRows(params, stream);
  return CudaStatus(cudaGetLastError(), "a plan");
}

}  // namespace nereid::gpu
