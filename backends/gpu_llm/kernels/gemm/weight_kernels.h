// Kernels on whole weight matrices: dequantization, and dummy weights.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"
#include "backends/gpu_llm/kernels/gemm/weight_format.h"

namespace nereid::gpu {

inline namespace NEREID_KERNEL_FORM {
// Dequantizes weights to bf16 out [num_outputs, depth], for matrix products of many rows. The
// weights are fp8 or int4; depth is a multiple of 8. Tests also use it as an independent reader of
// the formats.
void Dequantize(const WeightMatrix& weights, __nv_bfloat16* out, cudaStream_t stream);

// Dummy weights, uniform in [-bound, bound]: a function of the seed and the index only.
void RandomFill(__nv_bfloat16* out, int64_t count, float bound, uint64_t seed, cudaStream_t stream);
// Fills a matrix of any format, with its scales, such that products have about the magnitude of
// their input. The depth of an int4 matrix is a multiple of the block's columns.
void RandomFillMatrix(const WeightMatrix& matrix, uint64_t seed, cudaStream_t stream);
void ConstantFill(__nv_bfloat16* out, int64_t count, float value, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
