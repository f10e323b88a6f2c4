// Grid: persistent blocks, each of which multiplies tiles of outputs of one expert by the rows of
// that expert. Weights are operand a of wgmma, so that the number of rows is that of operand b, 8
// at least. One thread copies weights by tensor maps to a ring of stages in shared memory, and some
// warps copy the rows in 16 bytes a lane, because rows of one expert are scattered; both run ahead
// into the block's next tile while consumer warps finish the last one. A block holds one to four
// groups of consumer warps, with 64 outputs each: with more rows a block has more outputs, because
// it reads its rows once for each tile of outputs, through the same L2 cache as the weights.
//
// Bound by memory bandwidth: each expert's weights are read once if its rows fit into a tile.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/device/wgmma.cuh"
#include "backends/gpu_llm/kernels/gemm/stream_experts.h"

namespace nereid::gpu {
namespace {

constexpr int kStepColumns = 64;
constexpr int kRowBytes = 2 * kStepColumns;  // of a stage: the widest swizzle of wgmma

template <int kRows_, int kGroups_, int kStages_, int kBlocks_>
struct TileShape {
  static constexpr int kRows = kRows_;      // most rows of an expert in a tile
  static constexpr int kGroups = kGroups_;  // of four consumer warps, with 64 outputs each
  static constexpr int kStages = kStages_;
  static constexpr int kBlocks = kBlocks_;  // of a multiprocessor
  static constexpr int kOutputs = 64 * kGroups;
  static constexpr int kConsumers = 128 * kGroups;
  static constexpr int kRowWarps = kRows <= 16 ? 1 : kRows <= 32 ? 2 : 3;  // copy the rows
  static constexpr int kThreads = kConsumers + 32 * (1 + kRowWarps);
  static constexpr int kWeightBytes = kOutputs * kRowBytes;  // of a stage
  static constexpr int kStageBytes = kWeightBytes + kRows * kRowBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + 1024;
};
using Tile8 = TileShape<8, 1, 6, 4>;
using Tile16 = TileShape<16, 2, 6, 2>;
using Tile32 = TileShape<32, 2, 5, 2>;
using Tile64 = TileShape<64, 4, 5, 1>;
using Tile128 = TileShape<128, 4, 4, 1>;

// A box of the map is the weights of a stage.
__device__ __forceinline__ void CopyWeights(uint32_t to, const void* map, int column, int output,
                                            int expert, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3, %4}], [%5];" ::"r"(to),
      "l"(map), "r"(column), "r"(output), "r"(expert), "r"(SharedAddress(barrier))
      : "memory");
}

// Copies 16 bytes, or writes zeros.
__device__ __forceinline__ void CopyOrZero(uint32_t to, const void* from, bool is_valid) {
  const int bytes = is_valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

// The tiles of a block in order: every n-th of all pairs of rows' tile and tile of outputs.
class TileWalk {
 public:
  __device__ __forceinline__ TileWalk(const GroupedGemmParams& p, int tile_outputs)
      : tiles_(p.tiles),
        num_tiles_(p.num_tiles),
        num_outputs_((p.num_outputs + tile_outputs - 1) / tile_outputs),
        at_(static_cast<int>(blockIdx.x)) {
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
    const auto* words = reinterpret_cast<const int32_t*>(tiles_ + tile);
    return {__ldcg(words), __ldcg(words + 1), __ldcg(words + 2)};
  }
  const ExpertTile* tiles_;
  int num_tiles_, num_outputs_, at_;
  ExpertTile next_;
};

template <typename Shape>
struct Ring {
  uint32_t stages;  // address in shared memory
  uint64_t *full, *empty;
  int stage = 0, parity = 0;
  bool is_filled = false;  // every stage has been filled before

  __device__ __forceinline__ uint32_t at() const { return stages + stage * Shape::kStageBytes; }
  __device__ __forceinline__ void Advance() {
    if (++stage == Shape::kStages) stage = 0, parity ^= 1, is_filled = true;
  }
  __device__ __forceinline__ void WaitEmpty() const {
    if (is_filled) BarrierWait(empty + stage, parity ^ 1);
  }
};

// One thread. Does not read what the previous kernel writes, except the tiles.
template <typename Shape>
__device__ void ProduceWeights(const GroupedGemmParams& p, const void* map, Ring<Shape> ring) {
  const int num_steps = (p.depth + kStepColumns - 1) / kStepColumns;
  TileWalk walk(p, Shape::kOutputs);
  ExpertTile tile;
  int output_tile;
  while (walk.Next(tile, output_tile)) {
    for (int step = 0; step < num_steps; ++step, ring.Advance()) {
      ring.WaitEmpty();
      BarrierExpect(ring.full + ring.stage, Shape::kWeightBytes);
      CopyWeights(ring.at(), map, step * kStepColumns, output_tile * Shape::kOutputs, tile.expert,
                  ring.full + ring.stage);
    }
  }
}

// Rows of a stage above the tile's count keep old values: a column of operand b changes only the
// same column of the result.
template <typename Shape>
__device__ void ProduceRows(const GroupedGemmParams& p, Ring<Shape> ring) {
  constexpr int kThreads = 32 * Shape::kRowWarps, kAtOnce = kThreads / 8;
  constexpr int kPasses = (Shape::kRows + kAtOnce - 1) / kAtOnce;
  const int num_steps = (p.depth + kStepColumns - 1) / kStepColumns;
  const int thread = static_cast<int>(threadIdx.x) - Shape::kConsumers - 32;
  const int first_row = thread / 8, chunk = thread % 8;
  TileWalk walk(p, Shape::kOutputs);
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
    for (int step = 0; step < num_steps; ++step, ring.Advance()) {
      ring.WaitEmpty();
      const int column = step * kStepColumns;
      const bool is_inside = column + chunk * 8 < p.depth;
      const uint32_t to = ring.at() + Shape::kWeightBytes;
#pragma unroll
      for (int i = 0; i < kPasses; ++i) {
        const int row = first_row + i * kAtOnce;
        if (row < tile.count) {
          CopyOrZero(to + row * kRowBytes + ((chunk ^ (row & 7)) << 4),
                     is_inside ? from[i] + column : p.in, is_inside);
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
      const uint32_t pair =
          swap(d[0] / (1.0f + __expf(-d[0])) * d[2], d[1] / (1.0f + __expf(-d[1])) * d[3]);
      if (row < tile.count && first_output < p.num_outputs)
        *reinterpret_cast<uint32_t*>(out + first_output / 2) = pair;
      continue;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t pair = swap(d[2 * half], d[2 * half + 1]);
      const int output = first_output + 8 * half;
      if (row < tile.count && output < p.num_outputs)
        *reinterpret_cast<uint32_t*>(out + output) = pair;
    }
  }
}

// Multiplies a tile of up to kColumns rows.
template <typename Shape, int kColumns>
__device__ __forceinline__ void ConsumeTile(const GroupedGemmParams& p, const ExpertTile& tile,
                                            int output_tile, Ring<Shape>& ring) {
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
  const int num_steps = (p.depth + kStepColumns - 1) / kStepColumns;
  const bool releases = threadIdx.x % 32 == 0;
  float sums[kColumns / 2] = {};
  FenceAccumulators(sums);
  int previous = -1;  // stage whose wgmma may still be running
  for (int step = 0; step < num_steps; ++step, ring.Advance()) {
    BarrierWait(ring.full + ring.stage, ring.parity);
    ProxyFence();  // rows were written by threads
    const uint64_t a = MatrixDescriptor<kRowBytes>(ring.at() + group * (64 * kRowBytes));
    const uint64_t b = MatrixDescriptor<kRowBytes>(ring.at() + Shape::kWeightBytes);
    WgmmaBegin();
#pragma unroll
    for (int k = 0; k < kStepColumns / 16; ++k) Wgmma(sums, a + 2 * k, b + 2 * k, 1);
    WgmmaCommit();
    WgmmaWait<1>();
    if (previous >= 0 && releases) BarrierArrive(ring.empty + previous);
    previous = ring.stage;
  }
  WgmmaWait<0>();
  FenceAccumulators(sums);
  if (releases) BarrierArrive(ring.empty + previous);
  StoreTile(p, tile, output_tile * Shape::kOutputs + static_cast<int>(threadIdx.x) / 32 * 16, sums);
}

template <typename Shape>
__device__ void Consume(const GroupedGemmParams& p, Ring<Shape> ring) {
  TileWalk walk(p, Shape::kOutputs);
  ExpertTile tile;
  int output_tile;
  while (walk.Next(tile, output_tile)) {
    if constexpr (Shape::kRows >= 64) {
      if (tile.count <= Shape::kRows / 2) {
        ConsumeTile<Shape, Shape::kRows / 2>(p, tile, output_tile, ring);
        continue;
      }
      if (tile.count <= Shape::kRows * 3 / 4) {
        ConsumeTile<Shape, Shape::kRows * 3 / 4>(p, tile, output_tile, ring);
        continue;
      }
    }
    ConsumeTile<Shape, Shape::kRows>(p, tile, output_tile, ring);
  }
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    StreamExpertsKernel(const __grid_constant__ CUtensorMap map, GroupedGemmParams p,
                        bool tiles_are_older) {
  extern __shared__ char unaligned[];
  __shared__ uint64_t full[Shape::kStages], empty[Shape::kStages];
  const Ring<Shape> ring = {(SharedAddress(unaligned) + 1023) & ~1023u, full, empty};
  if (threadIdx.x == Shape::kConsumers) PrefetchMap(&map);
  if (threadIdx.x < Shape::kStages) {
    BarrierInit(full + threadIdx.x, 1 + 32 * Shape::kRowWarps);
    BarrierInit(empty + threadIdx.x, Shape::kConsumers / 32);
    BarrierInitFence();
  }
  __syncthreads();
  const bool produces_weights =
      threadIdx.x >= Shape::kConsumers && threadIdx.x < Shape::kConsumers + 32;
  if (!produces_weights || !tiles_are_older) WaitForPrevious();
  // Later than in other kernels, so that the kernel after the next one finds the tiles complete.
  LaunchNext();
  if (threadIdx.x < Shape::kConsumers) {
    Consume<Shape>(p, ring);
  } else if (produces_weights) {
    if (threadIdx.x == Shape::kConsumers) ProduceWeights<Shape>(p, &map, ring);
  } else {
    ProduceRows<Shape>(p, ring);
  }
}

// Encodes the map of all experts' weights, with boxes of a stage. Elements outside read as zero.
cudaError_t EncodeMap(CUtensorMap& map, const StreamExpertsParams& params, int tile_outputs) {
  const GroupedGemmParams& p = params.gemm;
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    (void)cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                           cudaEnableDefault, &result);
    return reinterpret_cast<Encode>(function);
  }();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(p.depth),
                               static_cast<cuuint64_t>(p.num_outputs),
                               static_cast<cuuint64_t>(params.num_experts)};
  const cuuint64_t stride = static_cast<cuuint64_t>(p.expert_stride);
  const cuuint64_t strides[2] = {2 * sizes[0], 2 * std::max(stride, sizes[0] * sizes[1])};
  const cuuint32_t box[3] = {kStepColumns, static_cast<cuuint32_t>(tile_outputs), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3,
             const_cast<void*>(static_cast<const void*>(p.weights)), sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

template <typename Shape>
cudaError_t LaunchShape(const StreamExpertsParams& params, int num_processors,
                        cudaStream_t stream) {
  const GroupedGemmParams& p = params.gemm;
  CUtensorMap map;
  if (const cudaError_t error = EncodeMap(map, params, Shape::kOutputs); error != cudaSuccess)
    return error;
  if (const cudaError_t error =
          cudaFuncSetAttribute(StreamExpertsKernel<Shape>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes);
      error != cudaSuccess) {
    return error;
  }
  const int64_t num_tiles =
      int64_t{p.num_tiles} * ((p.num_outputs + Shape::kOutputs - 1) / Shape::kOutputs);
  const auto grid =
      static_cast<unsigned>(std::min<int64_t>(num_tiles, int64_t{num_processors} * Shape::kBlocks));
  Launch(StreamExpertsKernel<Shape>, grid, Shape::kThreads, Shape::kSharedBytes, stream, map, p,
         params.tiles_are_older);
  return cudaGetLastError();
}

}  // namespace

cudaError_t StreamExperts(const StreamExpertsParams& params, int num_processors,
                          cudaStream_t stream) {
  switch (params.gemm.tile_rows) {
    case 8:
      return LaunchShape<Tile8>(params, num_processors, stream);
    case 16:
      return LaunchShape<Tile16>(params, num_processors, stream);
    case 32:
      return LaunchShape<Tile32>(params, num_processors, stream);
    case 64:
      return LaunchShape<Tile64>(params, num_processors, stream);
    case 128:
      return LaunchShape<Tile128>(params, num_processors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace nereid::gpu
