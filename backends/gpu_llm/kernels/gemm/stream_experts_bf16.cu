// Bf16 weights of stream_experts.cuh: operand a in shared memory, in the same stages as the rows.
// One thread copies them by a tensor map. The launcher for both weight formats is here, too.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "backends/gpu_llm/kernels/device/tensor_map.h"
#include "backends/gpu_llm/kernels/gemm/stream_experts.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::stream_experts {
namespace {

// One block of a multiprocessor, with wide stages, reads faster than several blocks with narrower
// ones.
template <int kRows, int kGroups, int kSteps, int kStages>
struct Bf16Shape : TileShape<kRows, kGroups, kSteps, kStages, 1> {
  using Tile = TileShape<kRows, kGroups, kSteps, kStages, 1>;
  static constexpr int kThreads = Tile::kConsumers + 32 * (1 + Tile::kRowWarps);
  static constexpr int kBoxBytes = Tile::kOutputs * kRowBytes;  // of a step's weights
  static constexpr int kWeightBytes = kSteps * kBoxBytes;       // of a stage
  static constexpr int kStageBytes = kWeightBytes + Tile::kRowsBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + 1024;
  using StageRing = Ring<Tile, kStageBytes>;
};

// A box of the map is the weights of a step. They are read once: the cache keeps the rows.
constexpr uint64_t kEvictFirst = 0x12f0000000000000;
__device__ __forceinline__ void CopyWeights(uint32_t to, const void* map, int column, int output,
                                            int expert, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(map), "r"(column), "r"(output), "r"(expert), "r"(SharedAddress(barrier)), "l"(kEvictFirst)
      : "memory");
}

// One thread. Does not read what the previous kernel writes, except the tiles.
template <typename Shape>
__device__ void ProduceWeights(const GroupedGemmParams& p, TileWalk walk, const void* map,
                               typename Shape::StageRing ring) {
  const int num_steps = Shape::NumStages(p.depth);
  ExpertTile tile;
  int output_tile;
  while (walk.Next(tile, output_tile)) {
    for (int step = 0; step < num_steps; ++step, ring.Advance()) {
      ring.WaitEmpty();
      BarrierExpect(ring.full + ring.stage, Shape::kWeightBytes);
#pragma unroll
      for (int i = 0; i < Shape::kSteps; ++i) {
        CopyWeights(ring.at() + i * Shape::kBoxBytes, map, step * Shape::kColumns + i * 64,
                    output_tile * Shape::kOutputs, tile.expert, ring.full + ring.stage);
      }
    }
  }
}

template <typename Shape>
__device__ void Consume(const GroupedGemmParams& p, TileWalk walk, typename Shape::StageRing ring) {
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
  const int num_steps = Shape::NumStages(p.depth);
  const bool releases = threadIdx.x % 32 == 0;
  ExpertTile tile;
  int output_tile;
  while (walk.Next(tile, output_tile)) {
    ForRows<Shape>(tile.count, [&](auto& sums) {
      FenceAccumulators(sums);
      int previous = -1;  // stage whose wgmma may still be running
      for (int step = 0; step < num_steps; ++step, ring.Advance()) {
        BarrierWait(ring.full + ring.stage, ring.parity);
        ProxyFence();  // rows were written by threads
        const uint32_t weights = ring.at() + group * (64 * kRowBytes), rows = ring.rows_at();
        WgmmaBegin();
#pragma unroll
        for (int i = 0; i < Shape::kSteps; ++i) {
          const uint64_t a = MatrixDescriptor<kRowBytes>(weights + i * Shape::kBoxBytes);
          const uint64_t b = MatrixDescriptor<kRowBytes>(rows + i * (Shape::kRows * kRowBytes));
#pragma unroll
          for (int k = 0; k < 4; ++k) Wgmma(sums, a + 2 * k, b + 2 * k, 1);
        }
        WgmmaCommit();
        WgmmaWait<1>();
        if (previous >= 0 && releases) BarrierArrive(ring.empty + previous);
        previous = ring.stage;
      }
      WgmmaWait<0>();
      FenceAccumulators(sums);
      if (releases) BarrierArrive(ring.empty + previous);
      StoreTile(p, tile, output_tile * Shape::kOutputs + static_cast<int>(threadIdx.x) / 32 * 16,
                sums);
    });
  }
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    StreamBf16Kernel(const __grid_constant__ CUtensorMap map, GroupedGemmParams p,
                     bool tiles_are_older) {
  extern __shared__ char unaligned[];
  __shared__ uint64_t full[Shape::kStages], empty[Shape::kStages];
  const typename Shape::StageRing ring = {(SharedAddress(unaligned) + 1023) & ~1023u, full, empty};
  if (threadIdx.x == Shape::kConsumers) PrefetchMap(&map);
  if (threadIdx.x < Shape::kStages) {
    BarrierInit(full + threadIdx.x, 1 + 32 * Shape::kRowWarps);
    BarrierInit(empty + threadIdx.x, Shape::kConsumers / 32);
    BarrierInitFence();
  }
  __syncthreads();
  const bool produces_weights =
      threadIdx.x >= Shape::kConsumers && threadIdx.x < Shape::kConsumers + 32;
  if (!tiles_are_older) WaitForPrevious();
  const TileWalk walk(p, Shape::kOutputs);
  if (!produces_weights && tiles_are_older) WaitForPrevious();
  // Later than in other kernels, so that the kernel after the next one finds the tiles complete.
  LaunchNext();
  if (threadIdx.x < Shape::kConsumers) {
    Consume<Shape>(p, walk, ring);
  } else if (produces_weights) {
    if (threadIdx.x == Shape::kConsumers) ProduceWeights<Shape>(p, walk, &map, ring);
  } else {
    ProduceRows<Shape>(p, Shape::kConsumers + 32, walk, ring);
  }
}

// The map of all experts' weights, for boxes of a stage.
cudaError_t EncodeMap(CUtensorMap& map, const StreamExpertsParams& params, int tile_outputs) {
  static_assert(kRowBytes == kTensorMapRowBytes);
  const int64_t depth = params.gemm.depth, outputs = params.gemm.num_outputs;
  return EncodeTensorMap<3>(map, params.weights.data, 2, {depth, outputs, params.num_experts},
                            {2 * depth, std::max(params.stride_bytes, 2 * depth * outputs)},
                            tile_outputs);
}

template <typename Shape>
cudaError_t LaunchShape(const StreamExpertsParams& params, int num_processors,
                        cudaStream_t stream) {
  CUtensorMap map;
  if (const cudaError_t error = EncodeMap(map, params, Shape::kOutputs); error != cudaSuccess)
    return error;
  return LaunchPersistent<Shape>(StreamBf16Kernel<Shape>, Shape::kThreads, Shape::kSharedBytes,
                                 params, num_processors, stream, map, params.gemm,
                                 params.tiles_are_older || params.gemm.tiles == nullptr);
}

}  // namespace

cudaError_t StreamBf16(const StreamExpertsParams& params, int num_processors, cudaStream_t stream) {
  // With half as many outputs a block, so that a small matrix has enough blocks.
  const bool is_small =
      params.gemm.tiles == nullptr &&
      int64_t{params.gemm.num_tiles} * params.gemm.num_outputs < int64_t{256} * num_processors;
  switch (params.gemm.tile_rows) {
    case 8:
      return is_small ? LaunchShape<Bf16Shape<8, 1, 4, 5>>(params, num_processors, stream)
                      : LaunchShape<Bf16Shape<8, 2, 2, 6>>(params, num_processors, stream);
    case 16:
      return is_small ? LaunchShape<Bf16Shape<16, 1, 4, 5>>(params, num_processors, stream)
                      : LaunchShape<Bf16Shape<16, 2, 2, 5>>(params, num_processors, stream);
    case 32:
      return is_small ? LaunchShape<Bf16Shape<32, 1, 4, 4>>(params, num_processors, stream)
                      : LaunchShape<Bf16Shape<32, 2, 2, 5>>(params, num_processors, stream);
    case 64:
      return is_small ? LaunchShape<Bf16Shape<64, 1, 2, 6>>(params, num_processors, stream)
                      : LaunchShape<Bf16Shape<64, 4, 1, 5>>(params, num_processors, stream);
    case 128:
      return LaunchShape<Bf16Shape<128, 4, 1, 4>>(params, num_processors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::stream_experts

namespace nereid::gpu::NEREID_KERNEL_FORM {

cudaError_t StreamExperts(const StreamExpertsParams& params, int num_processors,
                          cudaStream_t stream) {
  return params.weights.format == WeightFormat::kInt4
             ? stream_experts::StreamInt4(params, num_processors, stream)
             : stream_experts::StreamBf16(params, num_processors, stream);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
