// Kernels that prepare the input of a GEMM.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu {

// out[i][c] = in[rows[i]][order[c]] * scale[order[c]]: the input of a matrix whose columns a
// checkpoint reorders (GPTQ with act-order) or whose input it scales (TensorRT-LLM's AWQ).
struct GatherColumnsParams {
  const __nv_bfloat16* in;  // [.., depth]
  const int32_t* rows;      // [num_rows]: rows of `in`; null: the first num_rows
  const int32_t* order;     // [depth]; null: unchanged order
  const float* scale;       // [depth]; null: 1
  __nv_bfloat16* out;       // [num_rows, depth]
  int num_rows, depth;
};

inline namespace NEREID_KERNEL_FORM {
void GatherColumns(const GatherColumnsParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

// Quantizes rows to fp8 (e4m3) with one scale for each row, so that the maximum of a row becomes
// 448. The result is the input of matrix products of many rows with fp8 weights. The norm before
// the product is fused.
struct QuantizeRowsParams {
  const __nv_bfloat16* in;           // [.., depth]
  const int32_t* rows;               // [num_rows]: rows of `in`; null: the first num_rows
  const __nv_bfloat16* norm_weight;  // [depth]: RMS norm of the rows; null: none
  uint8_t* out;                      // [num_rows, depth]
  float* scales;                     // [num_rows]: out * scale approximates the row
  int num_rows, depth;               // depth: a multiple of 8
  float epsilon;
};

inline namespace NEREID_KERNEL_FORM {
void QuantizeRows(const QuantizeRowsParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
