// Both kernels are bound by reading the adapters: tensor cores multiply, and the fragments are read
// straight from global memory. The adapter's matrix is operand a of the mma (16 ranks or outputs),
// the rows of the step are its columns. A sum over k does not depend on the order of k, so that a
// lane reads consecutive values of a row and multiplies equal positions of both operands.
//
// What does not depend on the previous kernel (tile, matrix, the first values of it) is read before
// WaitForPrevious(). Blocks are small, so that some of them find room beside the previous kernel.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/gemm/adapter_gemm.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kTileRanks = 16;   // ranks or outputs of an mma
constexpr int kStepDepth = 32;   // of one read of shrink: 16 bytes a lane
constexpr int kStepsAtOnce = 4;  // reads of a warp that are under way together
constexpr int kRoundDepth = kWarps * kStepsAtOnce * kStepDepth;
constexpr int kWarpTiles = 4;  // tiles of outputs that a warp of expand computes

__device__ __forceinline__ AdapterTile TileOf(const AdapterRows& rows, int i) {
  if (rows.tiles != nullptr) return rows.tiles[i];
  return {i, 1, rows.slots[rows.rows != nullptr ? rows.rows[i] : i]};
}

// The adapter's matrix of the module; rank 0 if there is none.
__device__ __forceinline__ AdapterMatrix MatrixOf(const AdapterGemmParams& p, int slot,
                                                  int module) {
  if (slot < 0) return {nullptr, nullptr, 0, 0.0f};
  return p.rows.table[int64_t{slot} * p.rows.matrices_per_slot + p.modules[module].matrix];
}

// Part `part` of a module's sums of a row.
__device__ __forceinline__ float* LowRankOf(const AdapterGemmParams& p, int row, int module,
                                            int part, int num_parts) {
  return p.low_rank + row * p.low_rank_stride + (module * num_parts + part) * p.max_rank;
}

// Values of A for one round of a warp: ranks g and g + 8.
struct ShrinkOperand {
  uint4 low[kStepsAtOnce], high[kStepsAtOnce];

  // `a`: row g of the ranks, at the lane's first column, which is `k` of the depth.
  __device__ __forceinline__ void Load(const bf16* a, int k, int depth) {
#pragma unroll
    for (int i = 0; i < kStepsAtOnce; ++i) {
      const int at = i * kWarps * kStepDepth;
      const bool is_inside = k + at < depth;
      low[i] = is_inside ? LoadStreaming(a + at) : uint4{0, 0, 0, 0};
      high[i] = is_inside ? LoadStreaming(a + at + int64_t{8} * depth) : uint4{0, 0, 0, 0};
    }
  }
};

// Grid: (tiles, parts of the depth, modules). The warps of a block divide the part, and add their
// sums at the end. kRowBlocks: 1 for tiles of up to 8 rows, 2 for up to 16.
template <int kRowBlocks>
__global__ void __launch_bounds__(kThreads, kRowBlocks == 1 ? 7 : 5)
    ShrinkKernel(AdapterGemmParams p, int num_parts) {
  __shared__ float sums[kWarps][kTileRanks][8 * kRowBlocks];
  LaunchNext();
  const AdapterTile tile = TileOf(p.rows, static_cast<int>(blockIdx.x));
  const int part = static_cast<int>(blockIdx.y), module = static_cast<int>(blockIdx.z);
  const AdapterMatrix matrix = MatrixOf(p, tile.slot, module);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / 4, pair = lane % 4;
  const int first_k = part * kAdapterPartDepth + warp * kStepDepth + 8 * pair;
  const int end_k = min(p.depth, (part + 1) * kAdapterPartDepth);
  const bf16* const a = matrix.a + int64_t{group} * p.depth;
  ShrinkOperand operand;
  if (matrix.rank > 0) operand.Load(a + first_k, first_k, p.depth);
  WaitForPrevious();
  const bf16* const in = p.in + int64_t{tile.first_row + group} * p.depth;
  for (int first_rank = 0; first_rank < matrix.rank; first_rank += kTileRanks) {
    float d[kRowBlocks][4] = {};
    for (int k = first_k; k - 8 * pair < end_k; k += kRoundDepth) {
      if (first_rank > 0 || k > first_k)
        operand.Load(a + int64_t{first_rank} * p.depth + k, k, p.depth);
      uint4 rows[kRowBlocks][kStepsAtOnce];
#pragma unroll
      for (int n = 0; n < kRowBlocks; ++n) {
        const bool has_row = group + 8 * n < tile.num_rows;
#pragma unroll
        for (int i = 0; i < kStepsAtOnce; ++i) {
          const int at = k + i * kWarps * kStepDepth;
          rows[n][i] = has_row && at < p.depth
                           ? *reinterpret_cast<const uint4*>(in + int64_t{8 * n} * p.depth + at)
                           : uint4{0, 0, 0, 0};
        }
      }
#pragma unroll
      for (int i = 0; i < kStepsAtOnce; ++i) {
        const uint4 low = operand.low[i], high = operand.high[i];
#pragma unroll
        for (int n = 0; n < kRowBlocks; ++n) {
          MatrixMultiplyAdd(d[n], low.x, high.x, low.y, high.y, rows[n][i].x, rows[n][i].y);
          MatrixMultiplyAdd(d[n], low.z, high.z, low.w, high.w, rows[n][i].z, rows[n][i].w);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kRowBlocks; ++n) {
      const int row = 8 * n + 2 * pair;
      sums[warp][group][row] = d[n][0];
      sums[warp][group][row + 1] = d[n][1];
      sums[warp][group + 8][row] = d[n][2];
      sums[warp][group + 8][row + 1] = d[n][3];
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < tile.num_rows * kTileRanks; i += kThreads) {
      const int row = i / kTileRanks, rank = i % kTileRanks;
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += sums[w][rank][row];
      LowRankOf(p, tile.first_row + row, module, part, num_parts)[first_rank + rank] = sum;
    }
    __syncthreads();
  }
}

// Two floats as the sum of two pairs of bf16.
__device__ __forceinline__ void Split(float first, float second, uint32_t& high, uint32_t& low) {
  high = PackBf16(first, second);
  low = PackBf16(first - LowBf16(high), second - HighBf16(high));
}

// A lane's four ranks of a row, all parts added, as operand b of the mma.
struct ExpandInput {
  uint32_t high[2], low[2];

  __device__ __forceinline__ void Load(const float* parts, int num_parts, int part_stride,
                                       float scale, bool is_valid) {
    float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
    if (is_valid) {
#pragma unroll 4
      for (int i = 0; i < num_parts; ++i) {
        const float4 next = *reinterpret_cast<const float4*>(parts + int64_t{i} * part_stride);
        sum.x += next.x, sum.y += next.y, sum.z += next.z, sum.w += next.w;
      }
    }
    Split(sum.x * scale, sum.y * scale, high[0], low[0]);
    Split(sum.z * scale, sum.w * scale, high[1], low[1]);
  }
};

// Two adjacent numbers of a row of the output.
template <bool kIsFloat>
struct OutputPair {
  uint32_t bits = 0;
  __device__ __forceinline__ void Read(const void* out, int64_t at) {
    bits = *reinterpret_cast<const uint32_t*>(static_cast<const bf16*>(out) + at);
  }
  __device__ __forceinline__ float2 Plus(float first, float second) const {
    return {LowBf16(bits) + first, HighBf16(bits) + second};
  }
  static __device__ __forceinline__ void Write(void* out, int64_t at, float2 value) {
    *reinterpret_cast<uint32_t*>(static_cast<bf16*>(out) + at) = PackBf16(value.x, value.y);
  }
};
template <>
struct OutputPair<true> {
  float2 value = {0.0f, 0.0f};
  __device__ __forceinline__ void Read(const void* out, int64_t at) {
    value = *reinterpret_cast<const float2*>(static_cast<const float*>(out) + at);
  }
  __device__ __forceinline__ float2 Plus(float first, float second) const {
    return {value.x + first, value.y + second};
  }
  static __device__ __forceinline__ void Write(void* out, int64_t at, float2 value) {
    *reinterpret_cast<float2*>(static_cast<float*>(out) + at) = value;
  }
};

__device__ __forceinline__ int ColumnOf(const AdapterModule& module, int output) {
  return module.first_column + (module.interleaves ? output / 8 * 16 + output % 8 : output);
}

// The tiles of outputs of a warp: kWarpTiles of one module, or half of them of gate and the same
// outputs of up.
template <AdapterOutput kOutput>
struct WarpTiles {
  static constexpr int kModules = kOutput == AdapterOutput::kSiluGate ? 2 : 1;
  static constexpr int kTiles = kWarpTiles / kModules;  // of each module
  static constexpr int kOutputs = kTiles * kTileRanks;
  int module = 0;  // the first
  int first_output;

  // `block`: of all modules.
  __device__ __forceinline__ WarpTiles(const AdapterGemmParams& p, int block, int warp) {
    constexpr int kBlockOutputs = kWarps * kOutputs;
    if constexpr (kModules == 1) {
      for (; module + 1 < p.num_modules; ++module) {
        const int count = (p.modules[module].num_outputs + kBlockOutputs - 1) / kBlockOutputs;
        if (block < count) break;
        block -= count;
      }
    }
    first_output = block * kBlockOutputs + warp * kOutputs;
  }
};

// Operand a of a warp: rank k to k + 3 of outputs 2 g and 2 g + 1 of each tile.
template <int kTiles>
struct ExpandOperand {
  uint2 even[kTiles], odd[kTiles];

  __device__ __forceinline__ void Load(const AdapterMatrix& matrix, int first_output, int k,
                                       int num_outputs) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int output = first_output + kTileRanks * i;  // the number of outputs is even
      const bool is_inside = output < num_outputs && k < matrix.rank;
      const bf16* const from = matrix.b + int64_t{output} * matrix.rank + k;
      even[i] = is_inside ? *reinterpret_cast<const uint2*>(from) : uint2{0, 0};
      odd[i] = is_inside ? *reinterpret_cast<const uint2*>(from + matrix.rank) : uint2{0, 0};
    }
  }
};

// Grid: (blocks of outputs of all modules, tiles). kRowBlocks 0: each tile is one row.
template <AdapterOutput kOutput, int kRowBlocks>
__global__ void __launch_bounds__(kThreads, kRowBlocks == 0 ? 8 : 4)
    ExpandKernel(AdapterGemmParams p, int num_parts) {
  constexpr bool kIsFloat = kOutput == AdapterOutput::kFloat;
  constexpr bool kIsSingle = kRowBlocks == 0;
  constexpr int kBlocks = kIsSingle ? 1 : kRowBlocks;
  constexpr int kRowsALane = kIsSingle ? 1 : 2 * kBlocks;
  using Warp = WarpTiles<kOutput>;
  LaunchNext();
  const AdapterTile tile = TileOf(p.rows, static_cast<int>(blockIdx.y));
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / 4, pair = lane % 4;
  const Warp tiles(p, static_cast<int>(blockIdx.x), warp);
  const int num_outputs = p.modules[tiles.module].num_outputs;
  AdapterMatrix matrices[Warp::kModules];
  int rank = 0;
#pragma unroll
  for (int m = 0; m < Warp::kModules; ++m) {
    matrices[m] = MatrixOf(p, tile.slot, tiles.module + m);
    rank = max(rank, matrices[m].rank);
  }
  const int lane_output = tiles.first_output + 2 * group;  // of its first tile
  ExpandOperand<Warp::kTiles> operands[Warp::kModules];
#pragma unroll
  for (int m = 0; m < Warp::kModules; ++m)
    operands[m].Load(matrices[m], lane_output, 4 * pair, num_outputs);
  WaitForPrevious();
  if (tiles.first_output >= num_outputs) return;
  if (rank == 0 && kOutput != AdapterOutput::kSiluGate) return;

  // Of a single row, lane `pair` of a group finishes tile `pair`. Otherwise a lane finishes two
  // rows of each block of eight in all tiles.
  constexpr int kOwnTiles = kIsSingle ? 1 : kWarpTiles;
  const auto row_of = [&](int r) { return kIsSingle ? 0 : 8 * (r / 2) + 2 * pair + r % 2; };
  const auto tile_of = [&](int i) { return kIsSingle ? pair : i; };  // of kWarpTiles
  const auto output_of = [&](int i) {
    return lane_output + kTileRanks * (tile_of(i) % Warp::kTiles);
  };
  const auto place_of = [&](int i, int r) {
    const AdapterModule& module = p.modules[tiles.module + tile_of(i) / Warp::kTiles];
    return (tile.first_row + row_of(r)) * p.out_stride + ColumnOf(module, output_of(i));
  };
  const auto is_valid = [&](int i, int r) {
    return row_of(r) < tile.num_rows && output_of(i) < num_outputs;
  };
  OutputPair<kIsFloat> old[kOwnTiles][kRowsALane];
#pragma unroll
  for (int i = 0; i < kOwnTiles; ++i) {
#pragma unroll
    for (int r = 0; r < kRowsALane; ++r) {
      if (is_valid(i, r)) old[i][r].Read(p.out, place_of(i, r));
    }
  }

  float d[kWarpTiles][kBlocks][4] = {};
  for (int k = 4 * pair; k < rank; k += kAdapterRankUnit) {
#pragma unroll
    for (int m = 0; m < Warp::kModules; ++m) {
      if (k >= kAdapterRankUnit) operands[m].Load(matrices[m], lane_output, k, num_outputs);
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
        const int row = 8 * n + group;
        ExpandInput input;
        input.Load(LowRankOf(p, tile.first_row + row, tiles.module + m, 0, num_parts) + k,
                   num_parts, p.max_rank, matrices[m].scale,
                   row < tile.num_rows && k < matrices[m].rank);
#pragma unroll
        for (int i = 0; i < Warp::kTiles; ++i) {
          const uint2 even = operands[m].even[i], odd = operands[m].odd[i];
          float(&sum)[4] = d[m * Warp::kTiles + i][n];
          MatrixMultiplyAdd(sum, even.x, odd.x, even.y, odd.y, input.low[0], input.low[1]);
          MatrixMultiplyAdd(sum, even.x, odd.x, even.y, odd.y, input.high[0], input.high[1]);
        }
      }
    }
  }

  // sums(i, r): what the adapters add to the outputs output_of(i) and the next one, row row_of(r).
  float2 sums[kOwnTiles][kRowsALane];
  if constexpr (kIsSingle) {
#pragma unroll
    for (int i = 0; i < kWarpTiles; ++i) {
      const float first = __shfl_sync(0xffffffffu, d[i][0][0], lane & 28);
      const float second = __shfl_sync(0xffffffffu, d[i][0][2], lane & 28);
      if (i == pair) sums[0][0] = {first, second};
    }
  } else {
#pragma unroll
    for (int i = 0; i < kWarpTiles; ++i) {
#pragma unroll
      for (int r = 0; r < kRowsALane; ++r)
        sums[i][r] = {d[i][r / 2][r % 2], d[i][r / 2][2 + r % 2]};
    }
  }
  if constexpr (kOutput == AdapterOutput::kSiluGate) {
    const auto write = [&](int i, int r, float2 gate, float2 up) {
      if (!is_valid(i, r)) return;
      const int64_t at = int64_t{tile.first_row + row_of(r)} * num_outputs + output_of(i);
      gate.x = gate.x / (1.0f + __expf(-gate.x)) * up.x;
      gate.y = gate.y / (1.0f + __expf(-gate.y)) * up.y;
      OutputPair<false>::Write(p.gated, at, gate);
    };
    if constexpr (kIsSingle) {
      const float2 own = old[0][0].Plus(sums[0][0].x, sums[0][0].y);
      const float2 up = {__shfl_down_sync(0xffffffffu, own.x, Warp::kTiles),
                         __shfl_down_sync(0xffffffffu, own.y, Warp::kTiles)};
      if (pair < Warp::kTiles) write(0, 0, own, up);
    } else {
#pragma unroll
      for (int i = 0; i < Warp::kTiles; ++i) {
#pragma unroll
        for (int r = 0; r < kRowsALane; ++r) {
          const int u = i + Warp::kTiles;
          write(i, r, old[i][r].Plus(sums[i][r].x, sums[i][r].y),
                old[u][r].Plus(sums[u][r].x, sums[u][r].y));
        }
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < kOwnTiles; ++i) {
#pragma unroll
      for (int r = 0; r < kRowsALane; ++r) {
        if (!is_valid(i, r)) continue;
        OutputPair<kIsFloat>::Write(p.out, place_of(i, r),
                                    old[i][r].Plus(sums[i][r].x, sums[i][r].y));
      }
    }
  }
}

template <AdapterOutput kOutput>
void LaunchExpand(const AdapterGemmParams& params, cudaStream_t stream) {
  constexpr int kBlockOutputs = kWarps * WarpTiles<kOutput>::kOutputs;
  const int num_modules = kOutput == AdapterOutput::kSiluGate ? 1 : params.num_modules;
  int blocks = 0;
  for (int i = 0; i < num_modules; ++i)
    blocks += (params.modules[i].num_outputs + kBlockOutputs - 1) / kBlockOutputs;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(params.rows.num_tiles));
  const int num_parts = NumAdapterParts(params.depth);
  params.rows.tiles == nullptr
      ? Launch(ExpandKernel<kOutput, 0>, grid, kThreads, 0, stream, params, num_parts)
      : Launch(ExpandKernel<kOutput, 2>, grid, kThreads, 0, stream, params, num_parts);
}

}  // namespace

void AdapterShrink(const AdapterGemmParams& params, cudaStream_t stream) {
  const int num_parts = NumAdapterParts(params.depth);
  const dim3 grid(static_cast<unsigned>(params.rows.num_tiles), static_cast<unsigned>(num_parts),
                  static_cast<unsigned>(params.num_modules));
  params.rows.tiles == nullptr
      ? Launch(ShrinkKernel<1>, grid, kThreads, 0, stream, params, num_parts)
      : Launch(ShrinkKernel<2>, grid, kThreads, 0, stream, params, num_parts);
}

void AdapterExpand(const AdapterGemmParams& params, cudaStream_t stream) {
  switch (params.output) {
    case AdapterOutput::kBf16:
      return LaunchExpand<AdapterOutput::kBf16>(params, stream);
    case AdapterOutput::kFloat:
      return LaunchExpand<AdapterOutput::kFloat>(params, stream);
    case AdapterOutput::kSiluGate:
      return LaunchExpand<AdapterOutput::kSiluGate>(params, stream);
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
