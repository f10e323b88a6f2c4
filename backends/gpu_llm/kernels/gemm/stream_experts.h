// Grouped GEMM for few rows of each expert, as in a decode step: reads the weights of each tile of
// rows once, at the memory's rate. model/experts.cc selects it.
#pragma once

#include <cuda_runtime_api.h>

#include "backends/gpu_llm/kernels/gemm/gemm.h"

namespace nereid::gpu {

struct StreamExpertsParams {
  // With tiles, empty ones last; tile_rows 8, 16, 32, 64 or 128; `out` is bf16 and is not added to.
  GroupedGemmParams gemm;
  int num_experts;
  // The previous kernel has not written the tiles, and is a StreamExperts() or has followed one:
  // weights are copied before it has ended.
  bool tiles_are_older;
};

// A row's result depends only on the row and on tile_rows.
cudaError_t StreamExperts(const StreamExpertsParams& params, int num_processors,
                          cudaStream_t stream);

}  // namespace nereid::gpu
