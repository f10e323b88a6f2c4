// Products of rows with the matrix of the expert that each goes to, all experts in one launch:
// out[place] = in[row of place] x weights[expert]^T. A row's result depends on nothing but the row:
// its additions have one order, whatever stands beside it and whatever the tiles.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/rows/moe.h"

namespace nereid::gpu {

// Rows of a tile: few where steps are short.
inline constexpr int kSmallExpertTile = 16, kLargeExpertTile = 64;

struct GroupedGemmParams {
  const __nv_bfloat16* in;       // [.., depth]
  const int32_t* pairs;          // of each place: its row is pair / pairs_per_row; null: the place
  int pairs_per_row;             // with `pairs`
  const __nv_bfloat16* weights;  // [num_experts] matrices [num_outputs, depth]
  int64_t expert_stride;         // elements from one to the next
  const ExpertTile* tiles;       // [num_tiles]; null: all of one matrix
  int num_rows;                  // without tiles
  void* out;                     // [places, num_outputs] bf16
  int num_tiles;
  int num_outputs;  // a multiple of 8; of 16 with a gate; any for floats
  int depth;        // a multiple of 8
  int tile_rows;    // one of the two above
  bool out_is_float;
  bool accumulates;  // out += product
  bool gates;        // weights as silu_gate.h has them; out [places, num_outputs / 2]
};

void GroupedGemm(const GroupedGemmParams& params, cudaStream_t stream);

}  // namespace nereid::gpu
