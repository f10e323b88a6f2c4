// The matrix products of LoRA adapters, for rows of different adapters and ranks in one launch:
// out += scale * B (A in). "Shrink" computes low_rank = scale * (A in), "expand" adds B low_rank to
// the product of the model's own matrix. A row's result does not depend on the other rows.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu {

// An adapter's rank is padded with zeros to a multiple of this when it is copied to the device.
inline constexpr int kAdapterRankUnit = 16;
// The number of rows of the input that one tile of the kernels computes.
inline constexpr int kAdapterTileRows = 16;
// Matrices whose inputs are the same and whose outputs share a buffer: q, k, v, or gate and up.
inline constexpr int kMaxAdapterModules = 3;

// One matrix of the adapter in a slot. `rank` 0: the adapter does not change the matrix.
struct AdapterMatrix {
  const __nv_bfloat16* a;  // [rank, depth]
  const __nv_bfloat16* b;  // [outputs, rank]
  int32_t rank;            // padded
  float scale;
};

// Rows of one adapter that are computed together. `slot` -1: nothing is computed.
struct AdapterTile {
  int32_t first_row;
  int32_t num_rows;  // at most kAdapterTileRows
  int32_t slot;
};

// The rows of a step and their adapters. Without `tiles` there is a tile for each row, whose slot
// is slots[rows[i]], or slots[i] without `rows`.
struct AdapterRows {
  const AdapterMatrix* table;  // [slots, matrices_per_slot]
  int matrices_per_slot;
  const AdapterTile* tiles;
  const int32_t* slots;
  const int32_t* rows;
  int num_tiles;
};

struct AdapterModule {
  int matrix;        // index among the matrices of a slot
  int num_outputs;   // a multiple of 8, or of 2 for floats
  int first_column;  // of its outputs
  // Its outputs alternate with those of another module in groups of 8: output n is column
  // first_column + n / 8 * 16 + n % 8.
  bool interleaves;
};

struct AdapterGemmParams {
  AdapterRows rows;
  AdapterModule modules[kMaxAdapterModules];
  int num_modules;
  const __nv_bfloat16* in;  // [num_rows, depth]
  int depth;                // a multiple of 8
  float* low_rank;          // [num_rows, kMaxAdapterModules, max_rank]
  int max_rank;             // a multiple of kAdapterRankUnit
  void* out;                // [num_rows, out_stride] bf16, or float with out_is_float
  int64_t out_stride;
  bool out_is_float;
};

inline namespace NEREID_KERNEL_FORM {
// Writes `low_rank` for the rows with an adapter that changes the module.
void AdapterShrink(const AdapterGemmParams& params, cudaStream_t stream);
// Adds to `out`.
void AdapterExpand(const AdapterGemmParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
