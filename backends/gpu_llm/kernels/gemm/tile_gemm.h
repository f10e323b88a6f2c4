// The tile GEMM: out = in x weights^T for a matrix or for the matrices of experts, with weights of
// any format and rows in bf16. It needs nothing that GPUs from compute capability 8.0 lack.
// TileExperts() and, in the portable form, the split-K GEMM and the experts' GEMM are launches of
// it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"
#include "backends/gpu_llm/kernels/gemm/gemm.h"

namespace nereid::gpu {

struct TileGemmParams {
  WeightMatrix weights;  // of expert 0
  int64_t stride_bytes;  // from one expert's matrix to the next
  // fp8: elements from one expert's row_scales to the next, and words from its block_scales.
  int64_t scale_stride;
  const __nv_bfloat16* in;
  const int32_t* pairs;  // as in GroupedGemmParams
  int pairs_per_row;
  // The rows of a tile, of at most `tile_rows`: tiles[i], or the i-th tile of the experts' rows
  // (ExpertGemmParams::first_rows), or with neither rows [i tile_rows, num_rows).
  const ExpertTile* tiles;
  const int32_t* first_rows;
  int num_experts, num_rows, num_row_tiles, tile_rows;
  void* out;  // layout: GemmEpilogue
  GemmEpilogue output;
  int num_slices;  // of the depth; above 1 with a scratch
  int part_warps;  // TileGemmCase; 0: 1
  SplitScratch scratch;
};

inline namespace NEREID_KERNEL_FORM {
// Outputs: any number for floats, a multiple of 8, with a gate of 16, else. Depth: a multiple of 8,
// in fp8 of 16.
cudaError_t TileGemm(const TileGemmParams& params, cudaStream_t stream);
cudaError_t TileGemmBf16(const TileGemmParams& params, cudaStream_t stream);
cudaError_t TileGemmFp8(const TileGemmParams& params, cudaStream_t stream);
cudaError_t TileGemmInt4(const TileGemmParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
