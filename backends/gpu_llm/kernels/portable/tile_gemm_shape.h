// Shapes of the tile GEMM (gemm/portable/tile_gemm.cuh). Free of CUDA, so that tests compare them
// with GPUs that the machine does not have.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/gpu_llm/kernels/gemm/weight_format.h"

namespace nereid::gpu::portable_shape {

inline constexpr int kTileGemmRows[] = {8, 16, 32, 64, 128};
// Registers a thread may use are limited such that two blocks share a multiprocessor.
inline constexpr int kTileGemmBlocks = 2;

// A block multiplies `rows` rows by outputs() outputs. Its warps divide the outputs, the depth of a
// stage, the rows, and the columns of a slice.
struct TileGemmShape {
  int rows;
  int output_warps, depth_warps, row_warps, part_warps;
  int warp_tiles;                       // of 16 outputs a warp
  int slice_columns, slice_tile_bytes;  // of a warp in a stage; of 16 outputs in a slice
  int stages;

  constexpr int outputs() const { return 16 * output_warps * warp_tiles; }
  constexpr int threads() const { return 32 * output_warps * depth_warps * row_warps * part_warps; }
  // The most registers of a thread that the kernel's launch bounds allow.
  constexpr int registers() const { return std::min(255, 64 * 1024 / kTileGemmBlocks / threads()); }
  constexpr int stage_columns() const { return depth_warps * slice_columns; }
  constexpr int weight_bytes() const { return depth_warps * outputs() / 16 * slice_tile_bytes; }
  constexpr int stage_bytes() const { return weight_bytes() + 2 * rows * stage_columns(); }
  // Sums of the warps, in the memory of the stages. The pitch avoids bank conflicts.
  constexpr int sums_pitch() const { return outputs() + 4; }
  constexpr int sums_bytes() const { return 4 * depth_warps * part_warps * rows * sums_pitch(); }
  constexpr int shared_bytes() const { return std::max(stages * stage_bytes(), sums_bytes()); }
};

// Few rows: the warps share the depth, because narrow tiles give enough blocks. Many rows: a warp
// has all columns, so that 64 and 128 rows add in the same order. A stage of several ones has most
// bytes that fit, with 96 KB at most, so that it fits into the 99 KB that a block of threads may
// have on GPUs of 8.6, 8.9 and 12.0. `part_warps`: 1, or 2 for 64 rows.
constexpr TileGemmShape TileGemmShapeOf(WeightFormat format, int rows, int part_warps = 1) {
  TileGemmShape shape = {};
  shape.rows = rows;
  shape.part_warps = part_warps;
  const bool is_int4 = format == WeightFormat::kInt4;
  shape.slice_columns = is_int4 ? kInt4BlockColumns : 64;
  shape.slice_tile_bytes = is_int4                        ? Int4BlockBytes(4)
                           : format == WeightFormat::kFp8 ? 16 * 64
                                                          : 16 * 64 * 2;
  shape.output_warps = rows <= 16 ? (is_int4 ? 4 : 2) : rows == 32 && !is_int4 ? 2 : 4;
  shape.depth_warps = rows <= 16 ? (is_int4 ? 2 : 4) : rows == 32 && !is_int4 ? 2 : 1;
  shape.row_warps = rows == 128 ? 2 : 1;
  shape.warp_tiles = rows <= 16 ? 1 : 2;
  if (rows == 128 && format == WeightFormat::kFp8) {
    // Unpacked for 64 rows by 64 outputs: twice the products for each row that is read.
    shape.output_warps = 2, shape.warp_tiles = 4;
  }
  shape.stages = std::clamp(96 * 1024 / shape.stage_bytes(), 2, 6);
  return shape;
}

// Of a split-K GEMM. A product with 64 rows has few tiles; two warps instead of one for each part
// of them hide each other's waits. Experts' rows keep one order of additions for 64 and 128 rows.
constexpr int SplitPartWarps(int rows) {
  return rows == 64 ? 2 : 1;
}

// Elements of the partial sums that BestSplit() may need: those of twice the blocks that run at
// once.
constexpr int64_t MaxPartials(int num_processors) {
  return int64_t{2} * num_processors * kTileGemmBlocks * 64 * 128;
}

// The number of slices of the depth, up to `max_split`, with the fewest stages one after the other
// on a multiprocessor, as far as the partial sums fit. A slice costs some stages more: filling the
// ring and adding the sums.
constexpr int BestSplit(const TileGemmShape& shape, int64_t num_tiles, int depth,
                        int num_processors, int processor_shared_bytes, int max_split,
                        int64_t max_partials) {
  constexpr int kStagesOfSlice = 4, kStaticBytes = 3 * 1024;
  const int blocks = std::clamp(processor_shared_bytes / (shape.shared_bytes() + kStaticBytes), 1,
                                kTileGemmBlocks);
  const int64_t slots = int64_t{blocks} * num_processors;
  const int num_stages = (depth + shape.stage_columns() - 1) / shape.stage_columns();
  int best = 1;
  int64_t best_cost = INT64_MAX;
  for (int split = 1; split <= std::min(max_split, num_stages); ++split) {
    if (split > 1 && split * num_tiles * shape.rows * shape.outputs() > max_partials) break;
    const int64_t rounds = (num_tiles * split + slots - 1) / slots;
    const int64_t cost = rounds * ((num_stages + split - 1) / split + kStagesOfSlice);
    if (cost < best_cost) best = split, best_cost = cost;
  }
  return best;
}

}  // namespace nereid::gpu::portable_shape
