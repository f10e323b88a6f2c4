// The matrix products of LoRA adapters, for rows of different adapters and ranks in one launch:
// out += scale * B (A in). "Shrink" computes low_rank = A in, "expand" adds scale * B low_rank to
// the product of the model's own matrix. A row's result does not depend on the other rows.
//
// Both kernels load what they can of A and B before the previous kernel of the stream has ended.
// Launch shrink before the model's own product and expand after it: the adapters are then read
// while the kernels before them end.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"
#include "backends/gpu_llm/step_plan.h"

namespace nereid::gpu {

// An adapter's rank is padded with zeros to a multiple of this when it is copied to the device.
inline constexpr int kAdapterRankUnit = 16;
// Matrices whose inputs are the same and whose outputs share a buffer: q, k, v, or gate and up.
inline constexpr int kMaxAdapterModules = 3;

// Shrink divides the depth into parts of so many columns, whose sums expand adds in order.
inline constexpr int kAdapterPartDepth = 1024;
constexpr int NumAdapterParts(int depth) {
  return (depth + kAdapterPartDepth - 1) / kAdapterPartDepth;
}

// One matrix of the adapter in a slot. `rank` 0: the adapter does not change the matrix.
struct AdapterMatrix {
  const __nv_bfloat16* a;  // [rank, depth]
  const __nv_bfloat16* b;  // [outputs, rank]
  int32_t rank;            // padded
  float scale;
};

// All rows of a step and their adapters. Without `tiles` there is a tile for each row, whose slot
// is slots[rows[i]], or slots[i] without `rows`. Table, tiles, slots and rows were written before
// the kernels that run now: they are read before the previous kernel has ended.
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

enum class AdapterOutput : uint8_t {
  kBf16,
  kFloat,
  // The modules are gate and up, with interleaved outputs. The kernel only reads `out`, adds the
  // adapters' products to it, and writes silu(gate) * up of the sums to `gated`, for every row,
  // also for those without an adapter.
  kSiluGate,
};

struct AdapterGemmParams {
  AdapterRows rows;
  AdapterModule modules[kMaxAdapterModules];
  int num_modules;
  const __nv_bfloat16* in;  // [num_rows, depth]
  int depth;                // a multiple of 8
  // [num_rows, low_rank_stride]; of a row num_modules * NumAdapterParts(depth) * max_rank are used.
  float* low_rank;
  int64_t low_rank_stride;  // a multiple of 4
  int max_rank;             // a multiple of kAdapterRankUnit
  void* out;                // [num_rows, out_stride] bf16, or float with kFloat
  int64_t out_stride;
  AdapterOutput output;
  __nv_bfloat16* gated;  // [num_rows, num_outputs of a module], with kSiluGate
};

inline namespace NEREID_KERNEL_FORM {
// Writes `low_rank` for the rows with an adapter that changes the module.
void AdapterShrink(const AdapterGemmParams& params, cudaStream_t stream);
// Adds the product of `low_rank` and each row's B matrix to `out`; with kSiluGate it writes
// `gated`.
void AdapterExpand(const AdapterGemmParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
