// Both kernels are bound by reading the adapters: tensor cores multiply, and the fragments are read
// straight from global memory. A sum over k does not depend on the order of k, so that a lane reads
// consecutive values of a row and multiplies equal positions of both operands.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/gemm/adapter_gemm.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kShrinkWarps = 16;
constexpr int kStepsAtOnce = 4;   // reads of a warp that are under way together
constexpr int kShrinkRanks = 32;  // of one pass: blocks of 8
constexpr int kStepDepth = 32;    // of one read: 16 bytes a lane
constexpr int kExpandWarps = 4;
constexpr int kWarpOutputs = 64;  // outputs that a warp of expand computes at a time
constexpr int kBlockOutputs = kExpandWarps * kWarpOutputs;

__device__ __forceinline__ AdapterTile TileOf(const AdapterRows& rows, int i) {
  if (rows.tiles != nullptr) return rows.tiles[i];
  return {i, 1, rows.slots[rows.rows != nullptr ? rows.rows[i] : i]};
}

__device__ __forceinline__ uint4 ReadOrZero(const bf16* from, bool is_valid) {
  return is_valid ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
}

// Grid: (tiles, modules). The warps of a block divide the depth, and add their sums at the end.
__global__ void __launch_bounds__(32 * kShrinkWarps) ShrinkKernel(AdapterGemmParams p) {
  constexpr int kBlocks = kShrinkRanks / 8;
  __shared__ float sums[kShrinkWarps][kAdapterTileRows][kShrinkRanks];
  LaunchNext();
  WaitForPrevious();
  const AdapterTile tile = TileOf(p.rows, static_cast<int>(blockIdx.x));
  if (tile.slot < 0) return;
  const int module = static_cast<int>(blockIdx.y);
  const AdapterMatrix matrix =
      p.rows.table[int64_t{tile.slot} * p.rows.matrices_per_slot + p.modules[module].matrix];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / 4, column = lane % 4 * 8;
  const bool has_low = group < tile.num_rows, has_high = group + 8 < tile.num_rows;
  const bf16* const in_low = p.in + int64_t{tile.first_row + group} * p.depth;
  const bf16* const in_high = in_low + int64_t{8} * p.depth;
  const int num_steps = (p.depth + kStepDepth - 1) / kStepDepth;
  for (int first_rank = 0; first_rank < matrix.rank; first_rank += kShrinkRanks) {
    float d[kBlocks][4] = {};
    const bf16* const a = matrix.a + int64_t{first_rank + group} * p.depth;
    const int num_blocks = min(kBlocks, (matrix.rank - first_rank) / 8);  // 2 or 4
    for (int first = warp; first < num_steps; first += kShrinkWarps * kStepsAtOnce) {
      uint4 low[kStepsAtOnce], high[kStepsAtOnce], b[kStepsAtOnce][kBlocks];
#pragma unroll
      for (int i = 0; i < kStepsAtOnce; ++i) {
        const int k = (first + i * kShrinkWarps) * kStepDepth + column;
        const bool is_inside = k < p.depth;
#pragma unroll
        for (int j = 0; j < kBlocks; ++j)
          b[i][j] = ReadOrZero(a + int64_t{8 * j} * p.depth + k, is_inside && j < num_blocks);
        low[i] = ReadOrZero(in_low + k, has_low && is_inside);
        high[i] = ReadOrZero(in_high + k, has_high && is_inside);
      }
#pragma unroll
      for (int i = 0; i < kStepsAtOnce; ++i) {
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
          MatrixMultiplyAdd(d[j], low[i].x, high[i].x, low[i].y, high[i].y, b[i][j].x, b[i][j].y);
          MatrixMultiplyAdd(d[j], low[i].z, high[i].z, low[i].w, high[i].w, b[i][j].z, b[i][j].w);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const int at = 8 * j + lane % 4 * 2;
      sums[warp][group][at] = d[j][0];
      sums[warp][group][at + 1] = d[j][1];
      sums[warp][group + 8][at] = d[j][2];
      sums[warp][group + 8][at + 1] = d[j][3];
    }
    __syncthreads();
    const int num_ranks = min(kShrinkRanks, matrix.rank - first_rank);
    for (int i = static_cast<int>(threadIdx.x); i < tile.num_rows * kShrinkRanks;
         i += 32 * kShrinkWarps) {
      const int row = i / kShrinkRanks, rank = i % kShrinkRanks;
      if (rank >= num_ranks) continue;
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < kShrinkWarps; ++w) sum += sums[w][row][rank];
      p.low_rank[(int64_t{tile.first_row + row} * kMaxAdapterModules + module) * p.max_rank +
                 first_rank + rank] = sum * matrix.scale;
    }
    __syncthreads();
  }
}

// Two floats as the sum of two pairs of bf16.
__device__ __forceinline__ void Split(float2 value, uint32_t& high, uint32_t& low) {
  high = PackBf16(value.x, value.y);
  low = PackBf16(value.x - LowBf16(high), value.y - HighBf16(high));
}

// The pairs of a row of low_rank that a lane multiplies: ranks 4 t to 4 t + 3 of 16.
__device__ __forceinline__ void ReadLowRank(const float* from, bool is_valid, uint32_t (&high)[2],
                                            uint32_t (&low)[2]) {
  const float4 values = is_valid ? *reinterpret_cast<const float4*>(from) : float4{0, 0, 0, 0};
  Split({values.x, values.y}, high[0], low[0]);
  Split({values.z, values.w}, high[1], low[1]);
}

// Two adjacent numbers of a row of the output.
template <bool kIsFloat>
__device__ __forceinline__ float2 ReadPair(const void* out, int64_t at, bool is_valid) {
  if (!is_valid) return {0.0f, 0.0f};
  if constexpr (kIsFloat)
    return *reinterpret_cast<const float2*>(static_cast<const float*>(out) + at);
  const uint32_t pair = *reinterpret_cast<const uint32_t*>(static_cast<const bf16*>(out) + at);
  return {LowBf16(pair), HighBf16(pair)};
}
template <bool kIsFloat>
__device__ __forceinline__ void WritePair(void* out, int64_t at, float2 old, float low,
                                          float high) {
  if constexpr (kIsFloat) {
    *reinterpret_cast<float2*>(static_cast<float*>(out) + at) = {old.x + low, old.y + high};
  } else {
    *reinterpret_cast<uint32_t*>(static_cast<bf16*>(out) + at) =
        PackBf16(old.x + low, old.y + high);
  }
}

// Grid: (blocks of outputs of all modules, tiles).
template <bool kIsFloat>
__global__ void __launch_bounds__(32 * kExpandWarps) ExpandKernel(AdapterGemmParams p) {
  constexpr int kBlocks = kWarpOutputs / 8;
  LaunchNext();
  WaitForPrevious();
  const AdapterTile tile = TileOf(p.rows, static_cast<int>(blockIdx.y));
  if (tile.slot < 0) return;
  int module = 0, block = static_cast<int>(blockIdx.x);
  for (; module + 1 < p.num_modules; ++module) {
    const int count = (p.modules[module].num_outputs + kBlockOutputs - 1) / kBlockOutputs;
    if (block < count) break;
    block -= count;
  }
  const AdapterModule& target = p.modules[module];
  const AdapterMatrix matrix =
      p.rows.table[int64_t{tile.slot} * p.rows.matrices_per_slot + target.matrix];
  if (matrix.rank == 0) return;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / 4, pair = lane % 4;
  const int first_output = block * kBlockOutputs + warp * kWarpOutputs;
  if (first_output >= target.num_outputs) return;
  const bool has_low = group < tile.num_rows, has_high = group + 8 < tile.num_rows;
  const float* const low_row =
      p.low_rank + (int64_t{tile.first_row + group} * kMaxAdapterModules + module) * p.max_rank;
  const float* const high_row = low_row + int64_t{8} * kMaxAdapterModules * p.max_rank;
  const auto place = [&](int j) {
    const int output = first_output + 8 * j + 2 * pair;
    const int column =
        target.first_column + (target.interleaves ? output / 8 * 16 + output % 8 : output);
    return int64_t{tile.first_row + group} * p.out_stride + column;
  };
  // All reads are under way together.
  float2 old_low[kBlocks], old_high[kBlocks];
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
    const bool is_inside = first_output + 8 * j + 2 * pair < target.num_outputs;
    old_low[j] = ReadPair<kIsFloat>(p.out, place(j), has_low && is_inside);
    old_high[j] = ReadPair<kIsFloat>(p.out, place(j) + 8 * p.out_stride, has_high && is_inside);
  }
  float d[kBlocks][4] = {};
  for (int k = 4 * pair; k < matrix.rank; k += kAdapterRankUnit) {
    uint2 b[kBlocks];
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const int output = first_output + 8 * j + group;
      b[j] = output < target.num_outputs
                 ? *reinterpret_cast<const uint2*>(matrix.b + int64_t{output} * matrix.rank + k)
                 : uint2{0, 0};
    }
    uint32_t high_a[2], low_a[2], high_b[2], low_b[2];
    ReadLowRank(low_row + k, has_low, high_a, low_a);
    ReadLowRank(high_row + k, has_high, high_b, low_b);
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      MatrixMultiplyAdd(d[j], low_a[0], low_b[0], low_a[1], low_b[1], b[j].x, b[j].y);
      MatrixMultiplyAdd(d[j], high_a[0], high_b[0], high_a[1], high_b[1], b[j].x, b[j].y);
    }
  }
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
    if (first_output + 8 * j + 2 * pair >= target.num_outputs) break;
    if (has_low) WritePair<kIsFloat>(p.out, place(j), old_low[j], d[j][0], d[j][1]);
    if (has_high) {
      WritePair<kIsFloat>(p.out, place(j) + 8 * p.out_stride, old_high[j], d[j][2], d[j][3]);
    }
  }
}

}  // namespace

void AdapterShrink(const AdapterGemmParams& params, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(params.rows.num_tiles),
                  static_cast<unsigned>(params.num_modules));
  Launch(ShrinkKernel, grid, 32 * kShrinkWarps, 0, stream, params);
}

void AdapterExpand(const AdapterGemmParams& params, cudaStream_t stream) {
  int blocks = 0;
  for (int i = 0; i < params.num_modules; ++i)
    blocks += (params.modules[i].num_outputs + kBlockOutputs - 1) / kBlockOutputs;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(params.rows.num_tiles));
  params.out_is_float ? Launch(ExpandKernel<true>, grid, 32 * kExpandWarps, 0, stream, params)
                      : Launch(ExpandKernel<false>, grid, 32 * kExpandWarps, 0, stream, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
