// The grouped GEMM for few rows of each expert; each format of the weights is compiled in its own
// file.
//
// Grid: persistent blocks, each of which multiplies tiles of outputs of one expert by the rows of
// that expert. Weights are operand a of wgmma, so that the number of rows is that of operand b, 8
// at least. Weights are copied to rings in shared memory, and some warps copy the rows to another,
// in 16 bytes a lane, because rows of one expert are scattered. All run ahead into the block's next
// tile while consumer warps finish the last one. A block holds one to four groups of consumer
// warps, with 64 outputs each: with more rows a block has more outputs, because it reads its rows
// once for each tile of outputs, through the same L2 cache as the weights.
//
// Bound by memory bandwidth: each expert's weights are read once if its rows fit into a tile. An
// H100 reads the experts of Qwen3-30B-A3B and Mixtral-8x7B in bf16 at 2.9 to 3.07 TB/s, 8 to 256
// rows in all. Unpacking int4 takes longer than reading it from about 16 rows of an expert on.
// Device code only.
#pragma once

#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/device/wgmma.cuh"
#include "backends/gpu_llm/kernels/gemm/stream_experts.h"

namespace nereid::gpu::NEREID_KERNEL_FORM::stream_experts {

constexpr int kRowBytes = 128;  // of a stage: the widest swizzle of wgmma, 64 columns

// A stage has kSteps_ steps of 64 columns for each slice of the depth.
template <int kRows_, int kGroups_, int kSteps_, int kStages_, int kBlocks_, int kSlices_ = 1>
struct TileShape {
  static constexpr int kRows = kRows_;      // most rows of an expert in a tile
  static constexpr int kGroups = kGroups_;  // of four consumer warps, each 64 outputs of a slice
  static constexpr int kSlices = kSlices_;  // of the depth
  static constexpr int kSteps = kSteps_;
  static constexpr int kColumns = 64 * kSteps;  // of a stage and a slice
  static constexpr int kStages = kStages_;
  static constexpr int kBlocks = kBlocks_;  // of a multiprocessor
  static constexpr int kOutputs = 64 * kGroups / kSlices;
  static constexpr int kConsumers = 128 * kGroups;
  static constexpr int kRowWarps = kRows <= 16 ? 1 : kRows <= 32 ? 2 : 3;  // copy the rows
  static constexpr int kRowsBytes = kSlices * kSteps * kRows * kRowBytes;  // of a stage

  // Number of stages of a tile.
  __device__ static int NumStages(int depth) {
    return (depth + kSlices * kColumns - 1) / (kSlices * kColumns);
  }
};

// Copies 16 bytes, or writes zeros.
__device__ __forceinline__ void CopyOrZero(uint32_t to, const void* from, bool is_valid) {
  const int bytes = is_valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ int NumOutputTiles(const GroupedGemmParams& p, int tile_outputs) {
  return (p.num_outputs + tile_outputs - 1) / tile_outputs;
}

// The tiles of a block in order: every n-th of all pairs of rows' tile and tile of outputs.
class TileWalk {
 public:
  TileWalk() = default;
  __device__ __forceinline__ TileWalk(const GroupedGemmParams& p, int tile_outputs)
      : tiles_(p.tiles),
        num_tiles_(p.num_tiles),
        num_outputs_(NumOutputTiles(p, tile_outputs)),
        at_(static_cast<int>(blockIdx.x)),
        tile_rows_(p.tile_rows),
        num_rows_(p.num_rows) {
    next_ = Load();
  }
  // False at the end. Starts to load what the following call returns.
  __device__ __forceinline__ bool Next(ExpertTile& tile, int& output_tile) {
    tile = next_;
    output_tile = at_ % num_outputs_;
    if (tile.expert < 0) return false;
    at_ += static_cast<int>(gridDim.x);
    next_ = Load();
    return true;
  }

 private:
  __device__ __forceinline__ ExpertTile Load() const {
    const int tile = at_ / num_outputs_;
    if (tile >= num_tiles_) return {-1, 0, 0};
    if (tiles_ == nullptr) {
      const int row = tile * tile_rows_;
      return {0, row, min(tile_rows_, num_rows_ - row)};
    }
    const auto* words = reinterpret_cast<const int32_t*>(tiles_ + tile);
    return {__ldcg(words), __ldcg(words + 1), __ldcg(words + 2)};
  }
  const ExpertTile* tiles_;  // null: all rows use one matrix
  int num_tiles_, num_outputs_, at_, tile_rows_, num_rows_;
  ExpertTile next_;
};

// Stages, of kStageBytes each. The rows are in the last Shape::kRowsBytes of a stage.
template <typename Shape, int kStageBytes_>
struct Ring {
  static constexpr int kStageBytes = kStageBytes_;

  uint32_t stages;  // address in shared memory
  uint64_t *full, *empty;
  int stage = 0, parity = 0;
  bool is_filled = false;  // every stage has been filled before

  __device__ __forceinline__ uint32_t at() const { return stages + stage * kStageBytes; }
  __device__ __forceinline__ uint32_t rows_at() const {
    return at() + kStageBytes - Shape::kRowsBytes;
  }
  __device__ __forceinline__ void Advance() {
    if (++stage == Shape::kStages) stage = 0, parity ^= 1, is_filled = true;
  }
  __device__ __forceinline__ void WaitEmpty() const {
    if (is_filled) BarrierWait(empty + stage, parity ^ 1);
  }
};

// Rows of a stage above the tile's count keep old values: a column of operand b changes only the
// same column of the result.
template <typename Shape, typename Ring>
__device__ void ProduceRows(const GroupedGemmParams& p, int first_thread, TileWalk walk,
                            Ring ring) {
  constexpr int kThreads = 32 * Shape::kRowWarps, kAtOnce = kThreads / 8;
  constexpr int kPasses = (Shape::kRows + kAtOnce - 1) / kAtOnce;
  const int num_stages = Shape::NumStages(p.depth);
  const int thread = static_cast<int>(threadIdx.x) - first_thread;
  const int first_row = thread / 8, chunk = thread % 8;
  ExpertTile tile;
  int output_tile;
  while (walk.Next(tile, output_tile)) {
    const bf16* from[kPasses];
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int row = tile.first + min(first_row + i * kAtOnce, tile.count - 1);
      from[i] =
          p.in +
          int64_t{p.pairs != nullptr ? __ldcg(p.pairs + row) / p.pairs_per_row : row} * p.depth +
          chunk * 8;
    }
    for (int at = 0; at < num_stages; ++at, ring.Advance()) {
      ring.WaitEmpty();
#pragma unroll
      for (int part = 0; part < Shape::kSlices * Shape::kSteps; ++part) {
        const int slice = part / Shape::kSteps, step = part % Shape::kSteps;
        const int column = (slice * num_stages + at) * Shape::kColumns + step * 64;
        const bool is_inside = column + chunk * 8 < p.depth;
        const uint32_t to = ring.rows_at() + part * (Shape::kRows * kRowBytes);
#pragma unroll
        for (int i = 0; i < kPasses; ++i) {
          const int row = first_row + i * kAtOnce;
          if (row < tile.count) {
            CopyOrZero(to + row * kRowBytes + ((chunk ^ (row & 7)) << 4),
                       is_inside ? from[i] + column : p.in, is_inside);
          }
        }
      }
      AsyncCopyArrive(ring.full + ring.stage);
    }
  }
  AsyncCopyWaitAll();  // a thread that exits with copies in flight would leave them incomplete
}

// Stores a thread's sums. For each column of 8 rows it has outputs g and g + 8 of its warp's 16 for
// rows 2 t and 2 t + 1. Lane pairs with outputs g and g + 1 exchange values, so that each lane
// stores two adjacent outputs of one row.
template <int kCount>
__device__ __forceinline__ void StoreTile(const GroupedGemmParams& p, const ExpertTile& tile,
                                          int first_output, const float (&sums)[kCount]) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const bool is_even = g % 2 == 0;
  const int row_size = p.gates ? p.num_outputs / 2 : p.num_outputs;
  const auto swap = [&](float first, float second) {
    const float other = __shfl_xor_sync(0xffffffffu, is_even ? second : first, 4);
    return is_even ? PackBf16(first, other) : PackBf16(other, second);
  };
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
    if (8 * j >= tile.count) break;
    const float* d = sums + 4 * j;
    const int row = 8 * j + 2 * t + g % 2;
    bf16* out = static_cast<bf16*>(p.out) + int64_t{tile.first + row} * row_size + g / 2 * 2;
    if (p.gates) {
      const uint32_t pair = swap(__fdividef(d[0], 1.0f + __expf(-d[0])) * d[2],
                                 __fdividef(d[1], 1.0f + __expf(-d[1])) * d[3]);
      if (row < tile.count && first_output < p.num_outputs)
        *reinterpret_cast<uint32_t*>(out + first_output / 2) = pair;
      continue;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t pair = swap(d[2 * half], d[2 * half + 1]);
      const int output = first_output + 8 * half;
      if (row >= tile.count || output >= p.num_outputs) continue;
      auto& to = *reinterpret_cast<uint32_t*>(out + output);
      to = p.accumulates ? PackBf16(LowBf16(to) + LowBf16(pair), HighBf16(to) + HighBf16(pair))
                         : pair;
    }
  }
}

template <int kCount>
struct Columns {
  static constexpr int value = kCount;
};
// Calls multiply(sums) with as few columns of sums as the tile's rows need.
template <typename Shape, typename Multiply>
__device__ __forceinline__ void ForRows(int count, const Multiply& multiply) {
  const auto with = [&](auto columns) {
    float sums[decltype(columns)::value / 2] = {};
    multiply(sums);
  };
  if constexpr (Shape::kRows >= 64) {
    if (count <= Shape::kRows / 2) return with(Columns<Shape::kRows / 2>());
    if (count <= Shape::kRows * 3 / 4) return with(Columns<Shape::kRows * 3 / 4>());
  }
  with(Columns<Shape::kRows>());
}

cudaError_t StreamBf16(const StreamExpertsParams& params, int num_processors, cudaStream_t stream);
cudaError_t StreamInt4(const StreamExpertsParams& params, int num_processors, cudaStream_t stream);

// Launches a kernel with programmatic dependent launch, with as many blocks as have work, and run
// at once.
template <typename Shape, typename... Parameters, typename... Arguments>
cudaError_t LaunchPersistent(void (*kernel)(Parameters...), int threads, int shared_bytes,
                             const StreamExpertsParams& params, int num_processors,
                             cudaStream_t stream, Arguments&&... arguments) {
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
      error != cudaSuccess) {
    return error;
  }
  const int64_t num_tiles = int64_t{params.gemm.num_tiles} *
                            ((params.gemm.num_outputs + Shape::kOutputs - 1) / Shape::kOutputs);
  const int64_t at_once = int64_t{num_processors} * Shape::kBlocks;
  Launch(kernel, static_cast<unsigned>(num_tiles < at_once ? num_tiles : at_once), threads,
         static_cast<size_t>(shared_bytes), stream, std::forward<Arguments>(arguments)...);
  return cudaGetLastError();
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::stream_experts
