// Grid: a block of four warps computes a tile of rows by 64 outputs. It reads 64 columns of depth
// at a time through a ring of stages in shared memory. A row of a stage is 128 bytes; its 16-byte
// chunks are permuted by the row's number, so that ldmatrix has no bank conflicts. Tiles of few
// rows are bound by reading weights: they have half as many outputs and a longer ring, so that
// there are enough blocks and enough bytes in flight. Experts of Mixtral's size, few rows: 65 to 75
// % of an H200's 4.65 TB/s.
#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/gemm/gemm.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kStepColumns = 64;
constexpr int kRowBytes = kStepColumns * 2;

template <int kTileRows>
struct TileShape {
  static constexpr bool kIsLarge = kTileRows == kLargeExpertTile;
  static constexpr int kOutputs = kIsLarge ? 64 : 32;
  static constexpr int kStages = kIsLarge ? 4 : 8;
  static constexpr int kWarpsDown = kIsLarge ? 2 : 1, kWarpsAcross = 2;
  static constexpr int kThreads = 32 * kWarpsDown * kWarpsAcross;
  static constexpr int kInBytes = kTileRows * kRowBytes;
  static constexpr int kStageBytes = kInBytes + kOutputs * kRowBytes;
};

// Byte offset of 16-byte chunk `chunk` of row `row` within a stage.
__device__ __forceinline__ int ChunkOffset(int row, int chunk) {
  return row * kRowBytes + ((chunk ^ (row & 7)) << 4);
}

// Copies 16 bytes, or writes zeros.
__device__ __forceinline__ void AsyncCopyOrZero(char* to, const void* from, bool is_valid) {
  const int bytes = is_valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(to)), "l"(from),
               "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void LoadMatrices(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// Of 16 outputs a thread has the gate values in one accumulator and the up values in the next.
template <int kColumnBlocks>
__device__ __forceinline__ void StoreGated(const GroupedGemmParams& p, int64_t sorted_index,
                                           int first_output,
                                           const float (&sums)[2 * kColumnBlocks][4], int half) {
  bf16* to = static_cast<bf16*>(p.out) + sorted_index * (p.num_outputs / 2) + first_output / 2 +
             threadIdx.x % 4 * 2;
#pragma unroll
  for (int j = 0; j < kColumnBlocks; ++j) {
    if (first_output + 16 * j >= p.num_outputs) break;
    float gated[2];
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const float gate = sums[2 * j][2 * half + b];
      gated[b] = gate / (1.0f + __expf(-gate)) * sums[2 * j + 1][2 * half + b];
    }
    *reinterpret_cast<uint32_t*>(to + 8 * j) = PackBf16(gated[0], gated[1]);
  }
}

template <int kTileRows>
__global__ void __launch_bounds__(TileShape<kTileRows>::kThreads)
    GroupedGemmKernel(GroupedGemmParams p) {
  using Shape = TileShape<kTileRows>;
  constexpr int kThreads = Shape::kThreads, kTileOutputs = Shape::kOutputs;
  constexpr int kStages = Shape::kStages, kInBytes = Shape::kInBytes;
  constexpr int kWarpsAcross = Shape::kWarpsAcross, kStageBytes = Shape::kStageBytes;
  constexpr int kRowBlocks = kTileRows / Shape::kWarpsDown / 16;   // of 16 rows a warp
  constexpr int kColumnBlocks = kTileOutputs / kWarpsAcross / 16;  // of 16 outputs a warp
  extern __shared__ __align__(128) char stages[];
  __shared__ int32_t rows[kTileRows];
  LaunchNext();
  WaitForPrevious();
  const int first_row = static_cast<int>(blockIdx.y) * kTileRows;
  const ExpertTile tile = p.tiles != nullptr
                              ? p.tiles[blockIdx.y]
                              : ExpertTile{0, first_row, min(kTileRows, p.num_rows - first_row)};
  if (tile.expert < 0) return;
  const int first_output = blockIdx.x * kTileOutputs;
  if (threadIdx.x < kTileRows) {
    const int sorted_index = tile.first + min(static_cast<int>(threadIdx.x), tile.count - 1);
    rows[threadIdx.x] = p.pairs != nullptr ? p.pairs[sorted_index] / p.pairs_per_row : sorted_index;
  }
  __syncthreads();
  const bf16* weights = p.weights + tile.expert * p.expert_stride;
  const int num_steps = (p.depth + kStepColumns - 1) / kStepColumns;
  const auto fetch = [&](int step) {
    if (step < num_steps) {
      char* stage = stages + step % kStages * kStageBytes;
      const int chunk = threadIdx.x % 8, column = step * kStepColumns + chunk * 8;
      const bool is_inside = column < p.depth;
      const int from_column = is_inside ? column : 0;
      for (int row = threadIdx.x / 8; row < kTileRows; row += kThreads / 8) {
        AsyncCopyOrZero(stage + ChunkOffset(row, chunk),
                        p.in + int64_t{rows[row]} * p.depth + from_column,
                        is_inside && row < tile.count);
      }
      for (int row = threadIdx.x / 8; row < kTileOutputs; row += kThreads / 8) {
        const int output = first_output + row;
        const bool is_valid = is_inside && output < p.num_outputs;
        AsyncCopyOrZero(stage + kInBytes + ChunkOffset(row, chunk),
                        weights + int64_t{is_valid ? output : 0} * p.depth + from_column, is_valid);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  for (int step = 0; step < kStages - 1; ++step) fetch(step);

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / kWarpsAcross * kRowBlocks * 16;
  const int warp_column = warp % kWarpsAcross * kColumnBlocks * 16;
  float sums[kRowBlocks][2 * kColumnBlocks][4] = {};
  for (int step = 0; step < num_steps; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    __syncthreads();
    fetch(step + kStages - 1);
    const uint32_t in = SharedAddress(stages + step % kStages * kStageBytes);
#pragma unroll
    for (int k = 0; k < kStepColumns / 16; ++k) {
      uint32_t a[kRowBlocks][4], b[kColumnBlocks][4];
#pragma unroll
      for (int i = 0; i < kRowBlocks; ++i)
        LoadMatrices(a[i], in + ChunkOffset(warp_row + 16 * i + lane % 16, 2 * k + lane / 16));
#pragma unroll
      for (int j = 0; j < kColumnBlocks; ++j) {
        LoadMatrices(b[j], in + kInBytes +
                               ChunkOffset(warp_column + 16 * j + lane / 16 * 8 + lane % 8,
                                           2 * k + lane / 8 % 2));
      }
#pragma unroll
      for (int i = 0; i < kRowBlocks; ++i) {
#pragma unroll
        for (int j = 0; j < 2 * kColumnBlocks; ++j) {
          MatrixMultiplyAdd(sums[i][j], a[i][0], a[i][1], a[i][2], a[i][3], b[j / 2][j % 2 * 2],
                            b[j / 2][j % 2 * 2 + 1]);
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kRowBlocks; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row + 16 * i + 8 * half + lane / 4;
      if (row >= tile.count) continue;
      if (p.gates) {
        StoreGated<kColumnBlocks>(p, tile.first + row, first_output + warp_column, sums[i], half);
        continue;
      }
      const int64_t first = int64_t{tile.first + row} * p.num_outputs;
#pragma unroll
      for (int j = 0; j < 2 * kColumnBlocks; ++j) {
        const int output = first_output + warp_column + 8 * j + lane % 4 * 2;
        if (output >= p.num_outputs) continue;
        float low = sums[i][j][2 * half], high = sums[i][j][2 * half + 1];
        if (p.out_is_float) {
          float* to = static_cast<float*>(p.out) + first + output;
          to[0] = low;
          if (output + 1 < p.num_outputs) to[1] = high;
          continue;
        }
        auto* to = reinterpret_cast<uint32_t*>(static_cast<bf16*>(p.out) + first + output);
        if (p.accumulates) low += LowBf16(*to), high += HighBf16(*to);
        *to = PackBf16(low, high);
      }
    }
  }
}

template <int kTileRows>
void LaunchFor(const GroupedGemmParams& p, cudaStream_t stream) {
  using Shape = TileShape<kTileRows>;
  constexpr int kShared = Shape::kStages * Shape::kStageBytes;
  (void)cudaFuncSetAttribute(GroupedGemmKernel<kTileRows>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  const dim3 grid((p.num_outputs + Shape::kOutputs - 1) / Shape::kOutputs, p.num_tiles);
  Launch(GroupedGemmKernel<kTileRows>, grid, Shape::kThreads, kShared, stream, p);
}

}  // namespace

void GroupedGemm(const GroupedGemmParams& params, cudaStream_t stream) {
  params.tile_rows == kLargeExpertTile ? LaunchFor<kLargeExpertTile>(params, stream)
                                       : LaunchFor<kSmallExpertTile>(params, stream);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
