// Rows rounded to fp8 (e4m3), each with a factor of its own, so that the greatest value of a row
// becomes 448: what products of many rows with fp8 weights read. The norm ahead of the product is
// taken on the way.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace nereid::gpu {

struct QuantizeRowsParams {
  const __nv_bfloat16* in;           // [.., depth]
  const int32_t* rows;               // [num_rows]: which rows of `in`; null: the first num_rows
  const __nv_bfloat16* norm_weight;  // [depth]: rows are RMS-normed first; null: not
  uint8_t* out;                      // [num_rows, depth]
  float* factors;                    // [num_rows]: out * factor is about the row
  int num_rows, depth;               // depth: a multiple of 8
  float epsilon;
};

void QuantizeRows(const QuantizeRowsParams& params, cudaStream_t stream);

}  // namespace nereid::gpu
