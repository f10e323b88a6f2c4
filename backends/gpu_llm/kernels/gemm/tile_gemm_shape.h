// Shapes of the tile GEMM (gemm/tile_gemm.cuh). Free of CUDA, so that tests compare them
// with GPUs that the machine does not have.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/gpu_llm/kernels/gemm/weight_format.h"

namespace nereid::gpu::tile_gemm_shape {

inline constexpr int kTileGemmRows[] = {8, 16, 32, 64, 128};

// The memory for the stages of a ring. 96 KB fit into the 99 KB that a block of threads may have on
// GPUs of 8.6, 8.9 and 12.0; large rings are for GPUs on which a block may have 163 KB or more.
inline constexpr int kRingBytes = 96 * 1024, kLargeRingBytes = 144 * 1024;

// What a kernel of the tile GEMM is compiled for.
struct TileGemmCase {
  WeightFormat format;
  int rows;
  int part_warps = 1;  // warps that share the parts of a slice: 1, or 2 for 64 rows
  int scales = 1;      // int4: the most scales of a block; fp8: 2 with block scales
  int ring_bytes = kRingBytes;
};

// A block multiplies `rows` rows by outputs() outputs. Its warps divide the outputs, the depth of a
// stage, the rows, and the columns of a slice.
struct TileGemmShape {
  int rows;
  int output_warps, depth_warps, row_warps, part_warps;
  int warp_tiles;                       // of 16 outputs a warp
  int slice_columns, slice_tile_bytes;  // of a warp in a stage; of 16 outputs in a slice
  int stages;
  int blocks;  // that share a multiprocessor
  int passes;  // in which the sums go through the memory of the stages

  constexpr int outputs() const { return 16 * output_warps * warp_tiles; }
  constexpr int threads() const { return 32 * output_warps * depth_warps * row_warps * part_warps; }
  // The most registers of a thread that the kernel's launch bounds allow.
  constexpr int registers() const { return std::min(255, 64 * 1024 / blocks / threads()); }
  constexpr int stage_columns() const { return depth_warps * slice_columns; }
  constexpr int weight_bytes() const { return depth_warps * outputs() / 16 * slice_tile_bytes; }
  constexpr int stage_bytes() const { return weight_bytes() + 2 * rows * stage_columns(); }
  // Sums of the warps, in the memory of the stages. The pitch avoids bank conflicts.
  constexpr int sums_pitch() const { return outputs() + 4; }
  constexpr int sums_bytes() const {
    return 4 * depth_warps * part_warps * rows / passes * sums_pitch();
  }
  constexpr int shared_bytes() const { return std::max(stages * stage_bytes(), sums_bytes()); }
};

// For few rows, the warps of a block divide the depth of a stage, so that tiles of outputs are
// narrow: the more blocks keep all multiprocessors busy. For many rows, a warp multiplies all
// columns, so that tiles of 64 and 128 rows of experts add in the same order. The ring has as many
// stages as fit.
constexpr TileGemmShape TileGemmShapeOf(const TileGemmCase& of) {
  TileGemmShape shape = {};
  shape.rows = of.rows;
  shape.part_warps = of.part_warps;
  const bool is_int4 = of.format == WeightFormat::kInt4;
  shape.slice_columns = is_int4 ? kInt4BlockColumns : 64;
  shape.slice_tile_bytes = is_int4                           ? Int4BlockBytes(of.scales)
                           : of.format == WeightFormat::kFp8 ? 16 * 64
                                                             : 16 * 64 * 2;
  shape.output_warps = of.rows <= 16 ? (is_int4 ? 4 : 2) : of.rows == 32 && !is_int4 ? 2 : 4;
  shape.depth_warps = of.rows <= 16 ? (is_int4 ? 2 : 4) : of.rows == 32 && !is_int4 ? 2 : 1;
  shape.row_warps = 1;
  shape.warp_tiles = of.rows <= 16 ? 1 : 2;
  shape.blocks = of.part_warps == 2 ? 1 : 2, shape.passes = 1;
  if (of.rows == 128) {
    // Tiles of 64 rows by 64 outputs read the fewest bytes for a product. Quantized weights are
    // unpacked for all rows at once instead.
    shape.blocks = 1, shape.passes = 2;
    if (of.format == WeightFormat::kBf16) {
      shape.row_warps = 2, shape.warp_tiles = 4;
    } else if (!is_int4 || of.scales == 1) {
      shape.output_warps = 8;
    }
  }
  shape.stages = std::clamp(of.ring_bytes / shape.stage_bytes(), 2, 6);
  return shape;
}

// Elements of the partial sums that PlanSplit() may need: those of the largest tile on each
// multiprocessor.
constexpr int64_t MaxPartials(int num_processors) {
  return int64_t{num_processors} * 128 * 256;
}

// How the split-K GEMM covers a product with tiles.
struct SplitPlan {
  TileGemmCase of;
  int64_t num_tiles;
  int num_slices;  // of the depth
};

// `max_partials`: elements of the scratch. Where tiles leave multiprocessors idle, the depth is
// divided such that each of them has at most one slice of a tile: more slices would cost more
// additions and gain nothing. For the same reason, many rows have tiles of 128 rows only where
// these occupy at least half of the multiprocessors.
constexpr SplitPlan PlanSplit(WeightFormat format, int scales_per_block, int num_rows,
                              int num_outputs, int depth, int num_processors, int max_slices,
                              int64_t max_partials) {
  constexpr int kMinSliceColumns = 512;
  SplitPlan plan = {{format, kTileGemmRows[0]}, 0, 1};
  plan.of.scales = scales_per_block > 1 ? 4 : 1;
  const auto tile = [&](int rows) {
    plan.of.rows = rows;
    const int outputs = TileGemmShapeOf(plan.of).outputs();
    plan.num_tiles =
        int64_t{(num_rows + rows - 1) / rows} * ((num_outputs + outputs - 1) / outputs);
  };
  for (const int rows : kTileGemmRows) {
    tile(rows);
    if (rows >= num_rows) break;
  }
  if (plan.of.rows == 128 && 2 * plan.num_tiles < num_processors) tile(64);
  // Two warps hide each other's waits where a multiprocessor has only one block.
  if (plan.of.rows == 64 && plan.num_tiles <= num_processors) plan.of.part_warps = 2;
  const TileGemmShape shape = TileGemmShapeOf(plan.of);
  const int64_t tile_sums = plan.num_tiles * shape.rows * shape.outputs();
  const int64_t slices = std::min({num_processors / plan.num_tiles, int64_t{max_slices},
                                   int64_t{depth / kMinSliceColumns}, max_partials / tile_sums});
  plan.num_slices = static_cast<int>(std::max<int64_t>(1, slices));
  return plan;
}

}  // namespace nereid::gpu::tile_gemm_shape
