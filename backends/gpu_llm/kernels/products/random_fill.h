// Weights without a checkpoint: uniform in [-bound, bound], a function of seed and place.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/products/weight_format.h"

namespace nereid::gpu {

void RandomFill(__nv_bfloat16* out, int64_t count, float bound, uint64_t seed, cudaStream_t stream);
// A matrix of any format, its scales too, such that products keep about the size of their input. An
// int4 matrix has depth of whole blocks.
void RandomFillMatrix(const WeightMatrix& matrix, uint64_t seed, cudaStream_t stream);
void ConstantFill(__nv_bfloat16* out, int64_t count, float value, cudaStream_t stream);

}  // namespace nereid::gpu
