// out[row][c] = in[row of row][order[c]] * scale[order[c]]: the input of a matrix whose columns a
// checkpoint sorts (GPTQ with act-order) or whose input it scales (TensorRT-LLM's AWQ).
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace nereid::gpu {

struct GatherColumnsParams {
  const __nv_bfloat16* in;  // [.., depth]
  const int32_t* rows;      // [num_rows]: which rows of `in`; null: the first
  const int32_t* order;     // [depth]; null: as they are
  const float* scale;       // [depth]; null: 1
  __nv_bfloat16* out;       // [num_rows, depth]
  int num_rows, depth;
};

void GatherColumns(const GatherColumnsParams& params, cudaStream_t stream);

}  // namespace nereid::gpu
