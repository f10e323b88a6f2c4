// The tile GEMM's kernel. A block computes a tile of rows by outputs (portable/tile_gemm_shape.h).
// Weights and rows go through a ring of stages in shared memory with 16-byte asynchronous copies.
// Weights are operand a of the mma, so that few rows waste no more than they must; quantized ones
// are unpacked in registers. A slice of the depth may be another block's: the last block of a tile
// adds the slices in their order, so that equal calls give equal results. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/gemm/portable/tile_formats.cuh"
#include "backends/gpu_llm/kernels/gemm/portable/tile_gemm.h"
#include "backends/gpu_llm/kernels/portable/tile_gemm_shape.h"

namespace nereid::gpu::NEREID_KERNEL_FORM::tile_gemm {

using portable_shape::TileGemmShape;
using portable_shape::TileGemmShapeOf;

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

template <WeightFormat kFormat, int kRows, int kPartWarps>
__global__ void __launch_bounds__(TileGemmShapeOf(kFormat, kRows, kPartWarps).threads(),
                                  portable_shape::kTileGemmBlocks)
    TileGemmKernel(const __grid_constant__ TileGemmParams p) {
  static constexpr TileGemmShape kShape = TileGemmShapeOf(kFormat, kRows, kPartWarps);
  using Slice = SliceOf<kFormat>;
  constexpr int kThreads = kShape.threads(), kStages = kShape.stages, kTiles = kShape.warp_tiles;
  constexpr int kColumns = kShape.slice_columns, kStageBytes = kShape.stage_bytes();
  constexpr int kRowBytes = 2 * kColumns;                  // of a slice of a row
  constexpr int kRowTiles = kRows / kShape.row_warps / 8;  // of a warp, 8 rows each
  constexpr int kSliceTiles = kShape.outputs() / 16, kOutputs = kShape.outputs();
  // Behind the first products of a stage, where the other warps' products hide it.
  constexpr bool kFetchesLate = kFormat == WeightFormat::kInt4 && kRows == 128;
  extern __shared__ __align__(128) char ring[];
  __shared__ int64_t row_offsets[kRows];  // in the input; negative: none
  __shared__ ExpertTile shared_tile;
  __shared__ bool is_last;
  LaunchNext();
  WaitForPrevious();
  const int row_tile = static_cast<int>(blockIdx.x), slice = static_cast<int>(blockIdx.z);
  const int first_output = static_cast<int>(blockIdx.y) * kOutputs, depth = p.weights.depth;
  if (threadIdx.x < 32) {
    ExpertTile found = {0, row_tile * p.tile_rows, 0};
    if (p.tiles != nullptr) {
      found = p.tiles[row_tile];
    } else if (p.first_rows != nullptr) {
      found = FindTile(p, row_tile);
    } else {
      found.count = min(p.tile_rows, p.num_rows - found.first);
    }
    if (threadIdx.x == 0) shared_tile = found;
  }
  __syncthreads();
  const ExpertTile tile = shared_tile;
  if (tile.expert < 0) return;
  if (threadIdx.x < kRows) {
    const int sorted_index = tile.first + static_cast<int>(threadIdx.x);
    int64_t offset = -1;
    if (static_cast<int>(threadIdx.x) < tile.count) {
      offset = p.pairs != nullptr ? p.pairs[sorted_index] / p.pairs_per_row : sorted_index;
      offset *= depth;
    }
    row_offsets[threadIdx.x] = offset;
  }
  __syncthreads();

  const char* weights = static_cast<const char*>(p.weights.data) + tile.expert * p.stride_bytes;
  const int num_steps = (depth + kShape.stage_columns() - 1) / kShape.stage_columns();
  const int begin = static_cast<int>(int64_t{slice} * num_steps / p.num_slices);
  const int end = static_cast<int>(int64_t{slice + 1} * num_steps / p.num_slices);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int output_warp = warp % kShape.output_warps;
  const int depth_warp = warp / kShape.output_warps % kShape.depth_warps;
  const int part_warp = warp / kShape.output_warps / kShape.depth_warps % kPartWarps;
  const int row_warp = warp / kShape.output_warps / kShape.depth_warps / kPartWarps;
  constexpr int kWarpParts = Slice::kParts / kPartWarps;
  const auto fetch = [&](int step) {
    if (step < end) {
      char* stage = ring + (step - begin) % kStages * kStageBytes;
      const int first = step * kShape.stage_columns();
      // A warp copies the slices that it reads; warps that share them divide them.
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        if (i % (kShape.row_warps * kPartWarps) != row_warp * kPartWarps + part_warp) continue;
        const int tile_of_16 = output_warp * kTiles + i;
        Slice::Copy(stage + (depth_warp * kSliceTiles + tile_of_16) * kShape.slice_tile_bytes,
                    p.weights, weights, first_output / 16 + tile_of_16,
                    first + depth_warp * kColumns);
      }
      constexpr int kSliceChunks = kColumns / 8, kRowChunks = kShape.depth_warps * kSliceChunks;
#pragma unroll
      for (int i = 0; i < kRows * kRowChunks; i += kThreads) {
        const int at = i + static_cast<int>(threadIdx.x);
        if (kRows * kRowChunks % kThreads != 0 && at >= kRows * kRowChunks) break;
        const int row = at / kRowChunks, chunk = at % kRowChunks;
        const int64_t offset = row_offsets[row];
        const int column = first + chunk * 8;
        const bool is_valid = offset >= 0 && column < depth;
        char* to = stage + kShape.weight_bytes() +
                   (chunk / kSliceChunks * kRows + row) * kRowBytes +
                   ((chunk % kSliceChunks) ^ ((row & 1) * 5)) * 16;
        CopyOrZero(to, p.in + (is_valid ? offset + column : 0), is_valid);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) fetch(begin + i);

  float sums[kTiles][kRowTiles][4] = {};
  for (int step = begin; step < end; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    __syncthreads();
    if constexpr (!kFetchesLate) fetch(step + kStages - 1);
    const char* stage = ring + (step - begin) % kStages * kStageBytes;
    const char* slices =
        stage + (depth_warp * kSliceTiles + output_warp * kTiles) * kShape.slice_tile_bytes;
    const char* rows = stage + kShape.weight_bytes() +
                       (depth_warp * kRows + row_warp * kRowTiles * 8 + g) * kRowBytes;
    typename Slice::Scales scales[kTiles];
#pragma unroll
    for (int i_part = 0; i_part < kWarpParts; ++i_part) {
      const int part = part_warp * kWarpParts + i_part;
      const bool is_first = i_part == 0;
      uint32_t a[kTiles][8];
#pragma unroll
      for (int i = 0; i < kTiles; ++i)
        Slice::Read(slices + i * kShape.slice_tile_bytes, p.weights, part, is_first, scales[i],
                    a[i]);
      const int chunk = Slice::ChunkOf(part) ^ ((g & 1) * 5);
#pragma unroll
      for (int j = 0; j < kRowTiles; ++j) {
        const uint4 x = *reinterpret_cast<const uint4*>(rows + j * 8 * kRowBytes + chunk * 16);
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          MatrixMultiplyAdd(sums[i][j], a[i][0], a[i][1], a[i][2], a[i][3], x.x, x.y);
          MatrixMultiplyAdd(sums[i][j], a[i][4], a[i][5], a[i][6], a[i][7], x.z, x.w);
        }
      }
      if (kFetchesLate && is_first) fetch(step + kStages - 1);
    }
  }

  // The sums go through shared memory, for the sum over warps and for whole 16-byte stores.
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  constexpr int kPitch = kShape.sums_pitch();
  float* shared_sums = reinterpret_cast<float*>(ring);
  const int depth_part = depth_warp * kPartWarps + part_warp;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kRowTiles; ++j) {
      float* to = shared_sums +
                  (depth_part * kRows + (row_warp * kRowTiles + j) * 8 + 2 * t) * kPitch +
                  (output_warp * kTiles + i) * 16 + g;
      to[0] = sums[i][j][0], to[kPitch] = sums[i][j][1];
      to[8] = sums[i][j][2], to[kPitch + 8] = sums[i][j][3];
    }
  }
  __syncthreads();
  const float* scales = nullptr;
  if constexpr (kFormat == WeightFormat::kFp8)
    scales = p.weights.row_scales + tile.expert * p.scale_stride;
  const int num_outputs = p.weights.num_outputs;
  const bool gates = p.output == GemmEpilogue::kSiluGate;
  const int width = gates ? 16 : 8, row_units = kOutputs / width,
            num_units = tile.count * row_units;
  // Of `width` outputs: the sum over the warps.
  const auto sum_at = [&](int row, int column) {
    Sums result = {};
#pragma unroll
    for (int w = 0; w < kShape.depth_warps * kPartWarps; ++w) {
      const float* from = shared_sums + (w * kRows + row) * kPitch + column;
#pragma unroll
      for (int i = 0; i < 16; i += 4) {
        if (i >= width) break;
        const float4 four = *reinterpret_cast<const float4*>(from + i);
        result.values[i] += four.x, result.values[i + 1] += four.y;
        result.values[i + 2] += four.z, result.values[i + 3] += four.w;
      }
    }
    return result;
  };
  const auto finish = [&](int row, int column, Sums& result) {
    const int output = first_output + column;
    if (output >= num_outputs) return;
    if constexpr (kFormat == WeightFormat::kFp8) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        if (i < width && output + i < num_outputs) result.values[i] *= __ldg(scales + output + i);
      }
    }
    StoreSums(p, tile.first + row, output, result);
  };
  if (p.num_slices == 1) {
    for (int unit = threadIdx.x; unit < num_units; unit += kThreads) {
      const int row = unit / row_units, column = unit % row_units * width;
      Sums result = sum_at(row, column);
      finish(row, column, result);
    }
    return;
  }
  const int64_t tile_at = int64_t{blockIdx.y} * gridDim.x + blockIdx.x;
  const int64_t num_tiles = int64_t{gridDim.x} * gridDim.y;
  const auto partial_at = [&](int of_slice, int row, int column) {
    return p.scratch.partials + ((of_slice * num_tiles + tile_at) * kRows + row) * kOutputs +
           column;
  };
  for (int unit = threadIdx.x; unit < num_units; unit += kThreads) {
    const int row = unit / row_units, column = unit % row_units * width;
    const Sums result = sum_at(row, column);
    float* to = partial_at(slice, row, column);
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      if (i < width) {
        *reinterpret_cast<float4*>(to + i) = {result.values[i], result.values[i + 1],
                                              result.values[i + 2], result.values[i + 3]};
      }
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicAdd(p.scratch.tickets + tile_at, 1) == p.num_slices - 1;
    if (is_last) p.scratch.tickets[tile_at] = 0;
    __threadfence();
  }
  __syncthreads();
  if (!is_last) return;
  for (int unit = threadIdx.x; unit < num_units; unit += kThreads) {
    const int row = unit / row_units, column = unit % row_units * width;
    Sums result = {};
    for (int s = 0; s < p.num_slices; ++s) {
      const float* from = partial_at(s, row, column);
#pragma unroll
      for (int i = 0; i < 16; i += 4) {
        if (i >= width) break;
        const float4 four = __ldcg(reinterpret_cast<const float4*>(from + i));
        result.values[i] += four.x, result.values[i + 1] += four.y;
        result.values[i + 2] += four.z, result.values[i + 3] += four.w;
      }
    }
    finish(row, column, result);
  }
}

template <WeightFormat kFormat, int kRows, int kPartWarps = 1>
cudaError_t LaunchRows(const TileGemmParams& p, cudaStream_t stream) {
  constexpr TileGemmShape kShape = TileGemmShapeOf(kFormat, kRows, kPartWarps);
  const auto kernel = TileGemmKernel<kFormat, kRows, kPartWarps>;
  (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             kShape.shared_bytes());
  const dim3 grid(p.num_row_tiles,
                  (p.weights.num_outputs + kShape.outputs() - 1) / kShape.outputs(), p.num_slices);
  Launch(kernel, grid, kShape.threads(), kShape.shared_bytes(), stream, p);
  return cudaGetLastError();
}

template <WeightFormat kFormat>
cudaError_t LaunchFormat(const TileGemmParams& p, cudaStream_t stream) {
  switch (p.tile_rows) {
    case 8:
      return LaunchRows<kFormat, 8>(p, stream);
    case 16:
      return LaunchRows<kFormat, 16>(p, stream);
    case 32:
      return LaunchRows<kFormat, 32>(p, stream);
    case 64:
      return p.part_warps == 2 ? LaunchRows<kFormat, 64, 2>(p, stream)
                               : LaunchRows<kFormat, 64>(p, stream);
    case 128:
      return LaunchRows<kFormat, 128>(p, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::tile_gemm
