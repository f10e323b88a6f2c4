// Quantised weights as bf16, row by row: for products of many rows, and as a second reading of the
// formats.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "backends/gpu_llm/kernels/products/weight_format.h"

namespace nereid::gpu {

// To out [num_outputs, depth]. Of fp8 or int4; depth is a multiple of 8.
void Dequantize(const WeightMatrix& weights, __nv_bfloat16* out, cudaStream_t stream);

}  // namespace nereid::gpu
