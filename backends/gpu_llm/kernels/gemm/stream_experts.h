// Grouped GEMM for few rows of each expert, as in a decode step: reads the weights of each tile of
// rows once, at the memory's rate. kernel_registry.h chooses it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"
#include "backends/gpu_llm/kernels/gemm/gemm.h"

namespace nereid::gpu {

struct StreamExpertsParams {
  // With tiles, empty ones last. Without tiles (native form, bf16 weights), tile_rows rows at a
  // time use the only expert, whose weights are copied before the previous kernel has ended. `out`
  // is bf16; a product is rounded to bf16 before it is added. The members of the weights are not
  // used.
  GroupedGemmParams gemm;
  WeightMatrix weights;  // of expert 0: bf16, int4, or fp8 that does not quantize its input
  int64_t stride_bytes;  // from one expert's matrix to the next
  int num_experts;
  // The previous kernel has not written the tiles, and is a StreamExperts() or has followed one:
  // weights are copied before it has ended.
  bool tiles_are_older;
};

inline namespace NEREID_KERNEL_FORM {
// A row's result depends only on the row and on tile_rows.
cudaError_t StreamExperts(const StreamExpertsParams& params, int num_processors,
                          cudaStream_t stream);
// The same with the tile GEMM (tile_gemm.h), for calls with tiles that do not add to `out`.
cudaError_t TileExperts(const StreamExpertsParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
