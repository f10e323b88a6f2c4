// The tile GEMM's kernel. A block computes a tile of rows by outputs (tile_gemm_shape.h).
// Weights and rows go through a ring of stages in shared memory with 16-byte asynchronous copies.
// Weights are operand a of the mma, which takes 16 outputs, and the input is operand b, which takes
// 8 rows: so a tile of few rows has few empty ones. Quantized weights are unpacked in registers. A
// warp reads its next operands while it multiplies, also those of the next stage. A slice of the
// depth may be another block's: the last block of a tile adds the slices in their order, so that
// equal calls give equal results. Device code only.
#pragma once

#include <algorithm>

#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/gemm/tile_formats.cuh"
#include "backends/gpu_llm/kernels/gemm/tile_gemm.h"
#include "backends/gpu_llm/kernels/gemm/tile_gemm_shape.h"

namespace nereid::gpu::NEREID_KERNEL_FORM::tile_gemm {

using tile_gemm_shape::TileGemmShape;
using tile_gemm_shape::TileGemmShapeOf;

// Tile `at` of the experts' rows, whose tiles have at most `tile_rows` rows. Called by a warp.
__device__ inline ExpertTile FindTile(const TileGemmParams& p, int at) {
  const int lane = threadIdx.x % 32, each = (p.num_experts + 31) / 32;  // consecutive experts
  const int first = lane * each, last = min(p.num_experts, first + each);
  const auto tiles_of = [&](int expert) {
    const int count = __ldg(p.first_rows + expert + 1) - __ldg(p.first_rows + expert);
    return (count + p.tile_rows - 1) / p.tile_rows;
  };
  int tiles = 0;
  for (int expert = first; expert < last; ++expert) tiles += tiles_of(expert);
  int before = tiles;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, before, distance);
    if (lane >= distance) before += other;
  }
  before -= tiles;
  ExpertTile found = {-1, 0, 0};
  if (at >= before && at < before + tiles) {
    for (int expert = first; expert < last; ++expert) {
      const int count = tiles_of(expert);
      if (at < before + count) {
        const int row = __ldg(p.first_rows + expert) + (at - before) * p.tile_rows;
        found = {expert, row, min(p.tile_rows, __ldg(p.first_rows + expert + 1) - row)};
        break;
      }
      before += count;
    }
  }
  const uint32_t has = __ballot_sync(0xffffffffu, found.expert >= 0);
  const int from = has != 0 ? __ffs(static_cast<int>(has)) - 1 : 0;
  return {__shfl_sync(0xffffffffu, found.expert, from), __shfl_sync(0xffffffffu, found.first, from),
          __shfl_sync(0xffffffffu, found.count, from)};
}

// A chunk of 8 outputs from `output` on, or with a gate of 16, in a row of `out`.
struct Sums {
  float values[16];
};

__device__ __forceinline__ void StoreSums(const TileGemmParams& p, int64_t row, int output,
                                          const Sums& sums) {
  const int num_outputs = p.weights.num_outputs;
  if (p.output == GemmEpilogue::kSiluGate) {
    float gated[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      gated[i] = sums.values[i] / (1.0f + __expf(-sums.values[i])) * sums.values[8 + i];
    auto* to = static_cast<bf16*>(p.out) + row * (num_outputs / 2) + output / 2;
    *reinterpret_cast<uint4*>(to) = Pack8(gated);
    return;
  }
  const int64_t at = row * num_outputs + output;
  if (p.output == GemmEpilogue::kFloat) {
    float* to = static_cast<float*>(p.out) + at;
    if (num_outputs % 4 == 0) {
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        if (output + i < num_outputs) {
          *reinterpret_cast<float4*>(to + i) = {sums.values[i], sums.values[i + 1],
                                                sums.values[i + 2], sums.values[i + 3]};
        }
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (output + i < num_outputs) to[i] = sums.values[i];
    }
    return;
  }
  uint4* to = reinterpret_cast<uint4*>(static_cast<bf16*>(p.out) + at);
  float values[8] = {};
  if (p.output == GemmEpilogue::kAdd) Unpack8(*to, values);
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] += sums.values[i];
  *to = Pack8(values);
}

// The constants of a compiled kernel, and which part of the block's tile this warp has.
// kTileRows, kPartWarps, kScales, kRingBytes: as in TileGemmCase.
template <WeightFormat kFormatOfWeights, int kTileRows, int kPartWarps, int kScales, int kRingBytes>
struct WarpTile {
  static constexpr WeightFormat kFormat = kFormatOfWeights;
  static constexpr TileGemmShape kShape =
      TileGemmShapeOf({kFormat, kTileRows, kPartWarps, kScales, kRingBytes});
  using Slice = SliceOf<kFormat, kScales>;
  static constexpr int kRows = kShape.rows, kOutputs = kShape.outputs();  // of the block
  static constexpr int kTiles = kShape.warp_tiles;                        // of 16 outputs
  static constexpr int kRowTiles = kRows / kShape.row_warps / 8;          // of 8 rows
  static constexpr int kParts = Slice::kParts / kShape.part_warps;
  static constexpr int kColumns = kShape.slice_columns, kRowBytes = 2 * kColumns;
  static constexpr int kTileBytes = kShape.slice_tile_bytes;

  int output_warp, depth_warp, part_warp, row_warp;

  __device__ __forceinline__ WarpTile() {
    const int warp = threadIdx.x / 32;
    output_warp = warp % kShape.output_warps;
    depth_warp = warp / kShape.output_warps % kShape.depth_warps;
    part_warp = warp / kShape.output_warps / kShape.depth_warps % kShape.part_warps;
    row_warp = warp / kShape.output_warps / kShape.depth_warps / kShape.part_warps;
  }
  // Byte offsets in a stage: of a tile of the block's 16 outputs, and of a row of this warp's
  // depth.
  __device__ __forceinline__ uint32_t OutputsAt(int tile) const {
    return (depth_warp * (kOutputs / 16) + tile) * kTileBytes;
  }
  __device__ __forceinline__ uint32_t RowsAt(int depth_part, int row) const {
    return kShape.weight_bytes() + (depth_part * kRows + row) * kRowBytes;
  }
};

// The ring of stages in shared memory. A step is as much of the depth as a stage holds. A warp
// copies weights that it multiplies; warps that multiply the same ones divide them. Each thread
// copies one chunk of 8 columns of several rows. In place of rows after the tile's last one, the
// last one is copied again: nobody stores the sums of such rows.
template <typename Warp>
class StageRing {
  using Slice = typename Warp::Slice;
  static constexpr TileGemmShape kShape = Warp::kShape;
  static constexpr int kStageBytes = kShape.stage_bytes();
  static constexpr int kSharers = kShape.row_warps * kShape.part_warps;
  static constexpr int kCopyTiles = Warp::kTiles / kSharers;
  static constexpr int kSliceChunks = Warp::kColumns / 8;
  static constexpr int kChunks = kShape.depth_warps * kSliceChunks;
  static constexpr int kThreadRows = kShape.threads() / kChunks;  // that the block copies at once
  static constexpr int kRowCopies = Warp::kRows / kThreadRows;
  static_assert(Warp::kTiles % kSharers == 0 && kShape.threads() % kChunks == 0);
  static_assert(Warp::kRows % kThreadRows == 0 && kThreadRows % 8 == 0);

 public:
  // `weights`: the tile's matrix. `last_step`: after the last one of this block's depth.
  __device__ __forceinline__ StageRing(const TileGemmParams& p, const Warp& warp,
                                       const ExpertTile& tile, const char* weights,
                                       int first_output, int last_step, const char* ring)
      : p_(p), ring_(SharedAddress(ring)), last_step_(last_step) {
    const int copy_tile = warp.output_warp * Warp::kTiles +
                          (warp.row_warp * kShape.part_warps + warp.part_warp) * kCopyTiles;
    source_ = Slice::SourceOf(p.weights, weights, first_output / 16 + copy_tile);
    weights_to_ = ring_ + warp.OutputsAt(copy_tile);
    first_column_ = warp.depth_warp * Warp::kColumns;
    const int row = threadIdx.x / kChunks, chunk = threadIdx.x % kChunks;
    row_column_ = chunk * 8;
    rows_to_ = ring_ + warp.RowsAt(chunk / kSliceChunks, row) +
               ((chunk % kSliceChunks) ^ Slice::Swizzle(row)) * 16;
#pragma unroll
    for (int i = 0; i < kRowCopies; ++i) {
      int from = tile.first + min(row + i * kThreadRows, tile.count - 1);
      if (p.pairs != nullptr) from = p.pairs[from] / p.pairs_per_row;
      row_chunks_[i] = from * (p.weights.depth / 8) + chunk;
    }
  }

  // Starts the copies of a step, unless it is after the last one.
  __device__ __forceinline__ void Copy(int step, uint32_t stage) const {
    if (step < last_step_) {
      const int first = step * kShape.stage_columns();
      Slice::template Copy<kCopyTiles, Warp::kTileBytes>(weights_to_ + stage, p_.weights, source_,
                                                         first + first_column_);
      const bool is_valid = first + row_column_ < p_.weights.depth;
#pragma unroll
      for (int i = 0; i < kRowCopies; ++i) {
        CopyOrZero(rows_to_ + stage + i * kThreadRows * Warp::kRowBytes,
                   reinterpret_cast<const char*>(p_.in) + int64_t{row_chunks_[i] + first / 8} * 16,
                   is_valid);
      }
    }
    AsyncCopyCommit();
  }
  __device__ __forceinline__ void Fill(int step) const {
#pragma unroll
    for (int i = 0; i < kShape.stages; ++i) Copy(step + i, i * kStageBytes);
    AsyncCopyWaitGroups<kShape.stages - 1>();
    __syncthreads();
  }
  // Waits until the stage after the current one has arrived, and until all warps have read the
  // current one.
  __device__ __forceinline__ void WaitForNext() const {
    AsyncCopyWaitGroups<kShape.stages - 2>();
    __syncthreads();
  }
  __device__ __forceinline__ uint32_t address() const {
    return ring_;
  }
  static __device__ __forceinline__ uint32_t Next(uint32_t stage) {
    return stage == (kShape.stages - 1) * kStageBytes ? 0 : stage + kStageBytes;
  }

 private:
  const TileGemmParams& p_;
  uint32_t ring_, weights_to_, rows_to_;
  int last_step_, first_column_, row_column_;
  WeightSource source_;
  int row_chunks_[kRowCopies];  // of the input, in chunks of 8 columns
};

// Adds the products of steps [begin, end) to sums[tile of outputs][tile of rows], for the first
// kRowTiles tiles of rows. `block_scales`: of the matrix; null: none. `first_tile`: the warp's
// first tile of outputs in the matrix. The work of a step is divided into units: a unit has the
// products of some tiles of rows in one part. Eight products lie between two that add to the same
// sums, which hides their latency. The rows of the next unit and the weights of the next part are
// read ahead.
template <int kRowTiles, typename Warp>
__device__ __forceinline__ void MultiplySteps(const TileGemmParams& p, const Warp& warp,
                                              const StageRing<Warp>& ring,
                                              const uint32_t* block_scales, int first_tile,
                                              int begin, int end,
                                              float (&sums)[Warp::kTiles][Warp::kRowTiles][4]) {
  using Slice = typename Warp::Slice;
  constexpr int kTiles = Warp::kTiles;
  constexpr int kUnitRows = kRowTiles < 8 / kTiles ? kRowTiles : 8 / kTiles;
  constexpr int kPartUnits = kRowTiles / kUnitRows, kStepUnits = Warp::kParts * kPartUnits;
  static_assert(kRowTiles % kUnitRows == 0 && kStepUnits % 2 == 0);
  const uint32_t weights_from = ring.address() + warp.OutputsAt(warp.output_warp * kTiles);
  const uint32_t rows_from = ring.address() +
                             warp.RowsAt(warp.depth_warp, warp.row_warp * Warp::kRowTiles * 8) +
                             Slice::RowOffset();
  const int first_part = warp.part_warp * Warp::kParts;
  typename Slice::Packed packed[kTiles];
  uint4 rows[2][kUnitRows];
  const auto read_scales = [&](int step) {
    const int column = step * Warp::kShape.stage_columns() + warp.depth_warp * Warp::kColumns;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      // Tiles behind the matrix take the last one's scales.
      const int tile =
          min(first_tile + i, static_cast<int>(NumFp8Tiles(p.weights.num_outputs)) - 1);
      Slice::ReadScales(p.weights, block_scales + tile, column, packed[i]);
    }
  };
  const auto read_weights = [&](uint32_t stage, int part) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
      Slice::Read(weights_from + stage + i * Warp::kTileBytes, p.weights, first_part + part, part,
                  packed[i]);
  };
  const auto read_rows = [&](uint32_t stage, int unit) {
    const uint32_t from = rows_from + stage + Slice::ChunkOffset(first_part + unit / kPartUnits) +
                          unit % kPartUnits * kUnitRows * 8 * Warp::kRowBytes;
#pragma unroll
    for (int j = 0; j < kUnitRows; ++j)
      rows[unit % 2][j] = Slice::ReadRows(from + j * 8 * Warp::kRowBytes);
  };
  uint32_t stage = 0;
  read_scales(begin);
  read_weights(stage, 0);
  read_rows(stage, 0);
  for (int step = begin; step < end; ++step) {
    const uint32_t next = ring.Next(stage);
    uint32_t a[kTiles][8];
#pragma unroll
    for (int unit = 0; unit < kStepUnits; ++unit) {
      const int part = unit / kPartUnits;
      if (unit % kPartUnits == 0) {
#pragma unroll
        for (int i = 0; i < kTiles; ++i) Slice::Unpack(packed[i], first_part + part, part, a[i]);
        if (part + 1 < Warp::kParts) read_weights(stage, part + 1);
      }
      if (unit + 1 < kStepUnits) {
        read_rows(stage, unit + 1);
      } else {
        read_scales(step + 1);
        ring.WaitForNext();
        read_weights(next, 0);
        read_rows(next, 0);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int j = 0; j < kUnitRows; ++j) {
          const uint4& row = rows[unit % 2][j];
#pragma unroll
          for (int i = 0; i < kTiles; ++i) {
            MatrixMultiplyAdd(sums[i][unit % kPartUnits * kUnitRows + j], a[i][4 * half],
                              a[i][4 * half + 1], a[i][4 * half + 2], a[i][4 * half + 3],
                              half == 0 ? row.x : row.z, half == 0 ? row.y : row.w);
          }
        }
      }
    }
    ring.Copy(step + Warp::kShape.stages, stage);
    stage = next;
  }
}

// The end of a tile. Brings the sums of all warps to shared memory, adds them there, and stores
// them by whole chunks of outputs: to `out`, or to the scratch if other blocks have other slices of
// the depth.
template <typename Warp>
class TileSums {
  static constexpr TileGemmShape kShape = Warp::kShape;
  static constexpr int kRows = Warp::kRows, kOutputs = Warp::kOutputs;
  static constexpr int kThreads = kShape.threads(), kPitch = kShape.sums_pitch();
  static constexpr int kPassRows = kRows / kShape.passes;

 public:
  __device__ __forceinline__ TileSums(const TileGemmParams& p, const ExpertTile& tile,
                                      int first_output, int64_t tile_index, float* shared)
      : p_(p), tile_(tile), first_output_(first_output), tile_index_(tile_index), shared_(shared) {
    width_ = p.output == GemmEpilogue::kSiluGate ? 16 : 8;
    row_chunks_ = kOutputs / width_;
  }

  // `slice`: of the depth.
  __device__ __forceinline__ void Store(
      const Warp& warp, int slice, const float (&sums)[Warp::kTiles][Warp::kRowTiles][4]) const {
#pragma unroll
    for (int pass = 0; pass < kShape.passes; ++pass) {
      __syncthreads();
      Share(warp, pass * kPassRows, sums);
      __syncthreads();
      const int end = min(kPassRows, tile_.count - pass * kPassRows) * row_chunks_;
      for (int at = threadIdx.x; at < end; at += kThreads) {
        const int row = pass * kPassRows + at / row_chunks_, column = at % row_chunks_ * width_;
        Sums result = SumAt(row, column);
        if (p_.num_slices == 1) {
          Finish(row, column, result);
        } else {
          float* to = PartialAt(slice, row, column);
#pragma unroll
          for (int i = 0; i < 16; i += 4) {
            if (i < width_) {
              *reinterpret_cast<float4*>(to + i) = {result.values[i], result.values[i + 1],
                                                    result.values[i + 2], result.values[i + 3]};
            }
          }
        }
      }
    }
  }

  // Called by the block that is the last one of the tile to end.
  __device__ __forceinline__ void AddSlices() const {
    for (int at = threadIdx.x; at < tile_.count * row_chunks_; at += kThreads) {
      const int row = at / row_chunks_, column = at % row_chunks_ * width_;
      Sums result = {};
      for (int slice = 0; slice < p_.num_slices; ++slice) {
        const float* from = PartialAt(slice, row, column);
#pragma unroll
        for (int i = 0; i < 16; i += 4) {
          if (i >= width_) break;
          Add(__ldcg(reinterpret_cast<const float4*>(from + i)), result, i);
        }
      }
      Finish(row, column, result);
    }
  }

 private:
  static __device__ __forceinline__ void Add(const float4& four, Sums& to, int at) {
    to.values[at] += four.x, to.values[at + 1] += four.y;
    to.values[at + 2] += four.z, to.values[at + 3] += four.w;
  }
  // Writes the warp's sums of rows [first_row, first_row + kPassRows) to shared memory.
  __device__ __forceinline__ void Share(
      const Warp& warp, int first_row,
      const float (&sums)[Warp::kTiles][Warp::kRowTiles][4]) const {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int depth_part = warp.depth_warp * kShape.part_warps + warp.part_warp;
#pragma unroll
    for (int j = 0; j < Warp::kRowTiles; ++j) {
      const int row = (warp.row_warp * Warp::kRowTiles + j) * 8 - first_row;
      if (kShape.passes > 1 && (row < 0 || row >= kPassRows)) continue;
#pragma unroll
      for (int i = 0; i < Warp::kTiles; ++i) {
        float* to = shared_ + (depth_part * kPassRows + row + 2 * t) * kPitch +
                    (warp.output_warp * Warp::kTiles + i) * 16 + g;
        to[0] = sums[i][j][0], to[kPitch] = sums[i][j][1];
        to[8] = sums[i][j][2], to[kPitch + 8] = sums[i][j][3];
      }
    }
  }
  // The sum over the warps of width_ outputs.
  __device__ __forceinline__ Sums SumAt(int row, int column) const {
    Sums result = {};
#pragma unroll
    for (int w = 0; w < kShape.depth_warps * kShape.part_warps; ++w) {
      const float* from = shared_ + (w * kPassRows + row % kPassRows) * kPitch + column;
#pragma unroll
      for (int i = 0; i < 16; i += 4) {
        if (i >= width_) break;
        Add(*reinterpret_cast<const float4*>(from + i), result, i);
      }
    }
    return result;
  }
  __device__ __forceinline__ float* PartialAt(int slice, int row, int column) const {
    const int64_t num_tiles = int64_t{gridDim.x} * gridDim.y;
    return p_.scratch.partials + ((slice * num_tiles + tile_index_) * kRows + row) * kOutputs +
           column;
  }
  __device__ __forceinline__ void Finish(int row, int column, Sums& result) const {
    const int output = first_output_ + column, num_outputs = p_.weights.num_outputs;
    if (output >= num_outputs) return;
    if constexpr (Warp::kFormat == WeightFormat::kFp8) {
      const float* scales = p_.weights.row_scales + tile_.expert * p_.scale_stride;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        if (i < width_ && output + i < num_outputs) result.values[i] *= __ldg(scales + output + i);
      }
    }
    StoreSums(p_, tile_.first + row, output, result);
  }

  const TileGemmParams& p_;
  const ExpertTile& tile_;
  int first_output_, width_, row_chunks_;  // width_: outputs of a chunk
  int64_t tile_index_;
  float* shared_;
};

// The row tile and the output tile of this block. Blocks with consecutive numbers run at the same
// time. If rows are many, those of some row tiles come together and share rows and weights in the
// L2 cache.
template <typename Warp>
__device__ __forceinline__ int2 FindBlock() {
  constexpr int kGroup = 8;  // row tiles
  if (Warp::kRows < 64) return {static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y)};
  const int num_row_tiles = static_cast<int>(gridDim.x), num_outputs = static_cast<int>(gridDim.y);
  const int index = static_cast<int>(blockIdx.y) * num_row_tiles + static_cast<int>(blockIdx.x);
  const int first = index / (kGroup * num_outputs) * kGroup;
  const int size = min(kGroup, num_row_tiles - first), in_group = index - first * num_outputs;
  return {first + in_group % size, in_group / size};
}

template <typename Warp>
__global__ void __launch_bounds__(Warp::kShape.threads(), Warp::kShape.blocks)
    TileGemmKernel(const __grid_constant__ TileGemmParams p) {
  extern __shared__ __align__(128) char ring_bytes[];
  __shared__ ExpertTile shared_tile;
  __shared__ bool is_last;
  LaunchNext();
  WaitForPrevious();
  const int2 block = FindBlock<Warp>();
  const int slice = static_cast<int>(blockIdx.z), first_output = block.y * Warp::kOutputs;
  if (threadIdx.x < 32) {
    ExpertTile found = {0, block.x * p.tile_rows, 0};
    if (p.tiles != nullptr) {
      found = p.tiles[block.x];
    } else if (p.first_rows != nullptr) {
      found = FindTile(p, block.x);
    } else {
      found.count = min(p.tile_rows, p.num_rows - found.first);
    }
    if (threadIdx.x == 0) shared_tile = found;
  }
  __syncthreads();
  const ExpertTile tile = shared_tile;
  if (tile.expert < 0) return;

  constexpr int kStageColumns = Warp::kShape.stage_columns();
  const int num_steps = (p.weights.depth + kStageColumns - 1) / kStageColumns;
  const int begin = static_cast<int>(int64_t{slice} * num_steps / p.num_slices);
  const int end = static_cast<int>(int64_t{slice + 1} * num_steps / p.num_slices);
  const char* weights = static_cast<const char*>(p.weights.data) + tile.expert * p.stride_bytes;
  const Warp warp;
  const StageRing<Warp> ring(p, warp, tile, weights, first_output, end, ring_bytes);
  ring.Fill(begin);
  const uint32_t* block_scales = p.weights.block_scales;
  if (block_scales != nullptr) block_scales += tile.expert * p.scale_stride;
  const int first_tile = first_output / kFp8TileRows + warp.output_warp * Warp::kTiles;
  float sums[Warp::kTiles][Warp::kRowTiles][4] = {};
  // A tile of 128 rows with at most 64 takes half of the time.
  constexpr int kFewRowTiles = std::min(Warp::kRowTiles, 8);
  const int num_rows = tile.count - warp.row_warp * Warp::kRowTiles * 8;  // of this warp
  if (Warp::kRowTiles > kFewRowTiles && num_rows <= 64) {
    MultiplySteps<kFewRowTiles>(p, warp, ring, block_scales, first_tile, begin, end, sums);
  } else if (Warp::kShape.row_warps == 1 || num_rows > 0) {
    MultiplySteps<Warp::kRowTiles>(p, warp, ring, block_scales, first_tile, begin, end, sums);
  } else {  // the warp has nothing but copies to do
    uint32_t stage = 0;
    for (int step = begin; step < end; ++step, stage = ring.Next(stage)) {
      ring.WaitForNext();
      ring.Copy(step + Warp::kShape.stages, stage);
    }
  }
  AsyncCopyWaitAll();

  const int64_t tile_index = int64_t{block.y} * gridDim.x + block.x;
  const TileSums<Warp> tile_sums(p, tile, first_output, tile_index,
                                 reinterpret_cast<float*>(ring_bytes));
  tile_sums.Store(warp, slice, sums);
  if (p.num_slices == 1) return;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicAdd(p.scratch.tickets + tile_index, 1) == p.num_slices - 1;
    if (is_last) p.scratch.tickets[tile_index] = 0;
    __threadfence();
  }
  __syncthreads();
  if (is_last) tile_sums.AddSlices();
}

template <WeightFormat kFormat, int kRows, int kPartWarps = 1, int kScales = 1,
          int kRingBytes = tile_gemm_shape::kRingBytes>
cudaError_t LaunchShape(const TileGemmParams& p, cudaStream_t stream) {
  using Warp = WarpTile<kFormat, kRows, kPartWarps, kScales, kRingBytes>;
  constexpr TileGemmShape kShape = Warp::kShape;
  (void)cudaFuncSetAttribute(TileGemmKernel<Warp>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             kShape.shared_bytes());
  const dim3 grid(p.num_row_tiles,
                  (p.weights.num_outputs + kShape.outputs() - 1) / kShape.outputs(), p.num_slices);
  Launch(TileGemmKernel<Warp>, grid, kShape.threads(), kShape.shared_bytes(), stream, p);
  return cudaGetLastError();
}

// The most shared memory of a block of threads on the current device.
inline int MaxSharedBytes() {
  int device = 0, bytes = 0;
  (void)cudaGetDevice(&device);
  (void)cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return bytes;
}

template <WeightFormat kFormat, int kScales = 1>
cudaError_t LaunchRows(const TileGemmParams& p, cudaStream_t stream) {
  switch (p.tile_rows) {
    case 8:
      return LaunchShape<kFormat, 8, 1, kScales>(p, stream);
    case 16:
      return LaunchShape<kFormat, 16, 1, kScales>(p, stream);
    case 32:
      return LaunchShape<kFormat, 32, 1, kScales>(p, stream);
    case 64:
      return p.part_warps == 2 ? LaunchShape<kFormat, 64, 2, kScales>(p, stream)
                               : LaunchShape<kFormat, 64, 1, kScales>(p, stream);
    case 128:
      if constexpr (kFormat == WeightFormat::kBf16) {  // two stages fit into the smaller ring
        if (MaxSharedBytes() > tile_gemm_shape::kLargeRingBytes + 1024)
          return LaunchShape<kFormat, 128, 1, 1, tile_gemm_shape::kLargeRingBytes>(p, stream);
      }
      return LaunchShape<kFormat, 128, 1, kScales>(p, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::tile_gemm
