// Grouped GEMM for experts with many rows, on warpgroup matrix instructions: the rows of each
// expert are consecutive, and each expert's weights are read once for up to 256 of its rows.
// kernel_registry.h chooses between it and StreamExperts(). model/linear.cc multiplies single
// matrices with it where a row's result must not depend on the number of rows.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"
#include "backends/gpu_llm/kernels/gemm/gemm.h"
#include "backends/gpu_llm/kernels/gemm/weight_format.h"

namespace nereid::gpu {

struct ExpertGemmParams {
  WeightMatrix weights;  // of expert 0
  int64_t stride_bytes;  // from one expert's matrix to the next
  // fp8: elements from one expert's row_scales to the next, and words from its block_scales.
  int64_t scale_stride;
  // [num_experts + 1], on the device: expert e has the rows [first_rows[e], first_rows[e + 1]) of
  // `in` and `out`. Null: the only expert has all rows.
  const int32_t* first_rows;
  // [num_rows, depth]: fp8 with fp8 weights that quantize their input, else bf16
  const void* in;
  const float* in_scales;  // [num_rows], with an input in fp8
  void* out;  // [num_rows, num_outputs] bf16 or float, with a gate [num_rows, num_outputs / 2]
  int num_rows;
  int num_experts;  // at most kMaxExperts
  // kFloat only with bf16 weights. kAdd adds the product after it was rounded to bf16.
  GemmEpilogue output;
  // Without first_rows, and if no kernel writes the weights: copies the first ones before the
  // previous kernel has ended.
  bool copies_weights_early;
};

inline namespace NEREID_KERNEL_FORM {
// Outputs are a multiple of 8, with a gate of 16; columns of depth of 8, in fp8 of 16. A row's
// result depends only on the row: the order of additions does not depend on other rows, on the
// number of rows of an expert, or on their order.
cudaError_t ExpertGemm(const ExpertGemmParams& params, int num_processors, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
