// Int4 weights of stream_experts.cuh: operand a in registers. Each consumer warp has its own ring
// for the blocks of 16 outputs and 128 columns of its tile (weight_format.h), which its first lane
// fills. With few rows and a long depth the groups of warps share the depth of the same outputs,
// because one warp is bound by the latency of unpacking.
#include <cuda_runtime.h>

#include "backends/gpu_llm/kernels/gemm/int4_unpack.cuh"
#include "backends/gpu_llm/kernels/gemm/stream_experts.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::stream_experts {
namespace {

constexpr int kSlotBlocks = 2;  // consecutive blocks that one copy brings

template <int kRows, int kGroups, int kSlices, int kStages, int kSlots_, int kBlocks>
struct Int4Shape : TileShape<kRows, kGroups, 2, kStages, kBlocks, kSlices> {
  using Tile = TileShape<kRows, kGroups, 2, kStages, kBlocks, kSlices>;
  static constexpr int kSlots = kSlots_;
  static constexpr int kWarps = Tile::kConsumers / 32;
  static constexpr int kThreads = Tile::kConsumers + 32 * Tile::kRowWarps;
  static constexpr int kStagesBytes = kStages * Tile::kRowsBytes;
  static constexpr int kSliceThreads = Tile::kConsumers / kSlices;
  using StageRing = Ring<Tile, Tile::kRowsBytes>;
  static int SharedBytes(int block_bytes) {
    return 1024 + kStagesBytes + kWarps * kSlots * kSlotBlocks * block_bytes;
  }
};

struct Int4Weights {
  const char* data;
  int64_t stride_bytes;  // from one expert's matrix to the next
  int scales_per_block;
};

// The ring of a warp's weights. The first lane starts the copies, in the order of the block's
// tiles.
template <typename Shape>
class WarpRing {
 public:
  __device__ __forceinline__ WarpRing(const GroupedGemmParams& p, const Int4Weights& weights,
                                      uint32_t slots, uint64_t* full)
      : slots_(slots),
        full_(full),
        weights_(weights),
        block_bytes_(Int4BlockBytes(weights.scales_per_block)),
        row_blocks_(NumInt4Blocks(p.depth)),
        slice_(static_cast<int>(threadIdx.x) / Shape::kSliceThreads),
        first_block_(slice_ * Shape::NumStages(p.depth)),
        num_blocks_(max(0, min(Shape::NumStages(p.depth), row_blocks_ - first_block_))),
        num_outputs_(p.num_outputs),
        fills_(threadIdx.x % 32 == 0) {}

  // Before the first Fill(), after the tiles are complete.
  __device__ __forceinline__ void Start(const TileWalk& walk) {
    if (num_blocks_ == 0) return;
    walk_ = walk;
    for (int i = 0; i < Shape::kSlots; ++i) Fill(i);
  }
  // Waits for the next slot and returns its address.
  __device__ __forceinline__ uint32_t Wait() const {
    BarrierWait(full_ + slot_, parity_);
    return slots_ + slot_ * kSlotBlocks * block_bytes_;
  }
  // The slot has been read by the whole warp.
  __device__ __forceinline__ void Release() {
    __syncwarp();
    if (fills_) Fill(slot_);
    if (++slot_ == Shape::kSlots) slot_ = 0, parity_ ^= 1;
  }
  __device__ __forceinline__ int block_bytes() const { return block_bytes_; }
  // Of a tile, in the warp's slice of the depth.
  __device__ __forceinline__ int num_blocks() const { return num_blocks_; }
  __device__ __forceinline__ int slice() const { return slice_; }
  __device__ __forceinline__ int scales_per_block() const { return weights_.scales_per_block; }
  __device__ __forceinline__ bool fills() const { return fills_; }

 private:
  __device__ void Fill(int slot) {
    if (blocks_left_ == 0) {
      ExpertTile tile;
      int output_tile;
      if (!walk_.Next(tile, output_tile)) return;
      const int row_tile = output_tile * (Shape::kOutputs / kInt4TileRows) +
                           static_cast<int>(threadIdx.x) % Shape::kSliceThreads / 32;
      has_tile_ = row_tile * kInt4TileRows < num_outputs_;
      next_ = weights_.data + tile.expert * weights_.stride_bytes +
              (int64_t{row_tile} * row_blocks_ + first_block_) * block_bytes_;
      blocks_left_ = num_blocks_;
    }
    const int count = min(kSlotBlocks, blocks_left_);
    blocks_left_ -= count;
    if (!has_tile_) {
      BarrierArrive(full_ + slot);
      return;
    }
    BarrierExpect(full_ + slot, count * block_bytes_);
    BulkCopy(slots_ + slot * kSlotBlocks * block_bytes_, next_, count * block_bytes_, full_ + slot);
    next_ += count * block_bytes_;
  }

  uint32_t slots_;
  uint64_t* full_;
  Int4Weights weights_;
  int block_bytes_, row_blocks_, slice_, first_block_, num_blocks_, num_outputs_;
  bool fills_;
  int slot_ = 0, parity_ = 0;
  // Of the first lane: what is copied next.
  TileWalk walk_;
  bool has_tile_ = false;
  const char* next_ = nullptr;
  int blocks_left_ = 0;
};

// sums += a block of weights x the slice's rows of a stage. `previous`: the stage before, which is
// released.
template <typename Shape, typename StageRing, int kCount>
__device__ __forceinline__ void MultiplyBlock(const StageRing& ring, int slice, uint32_t block,
                                              int scales_per_block, bool releases, int previous,
                                              float (&sums)[kCount]) {
  const int lane = threadIdx.x % 32, shift = lane % 4 * 4;
  const uint32_t words_at = block + lane / 4 * 64;
  const uint32_t scales_at = block + kInt4ValueBytes + lane / 4 * 4;
  uint32_t mask, bias;
  asm("mov.b32 %0, %1;" : "=r"(mask) : "n"(kInt4Mask));
  asm("mov.b32 %0, %1;" : "=r"(bias) : "n"(kInt4Bias));
  Int4Scale low, high;  // of the lane's first row, and of the row 8 below
  uint32_t fragments[2][8];
#pragma unroll
  for (int s = 0; s < 2; ++s) {  // of 64 columns
    uint4 words[4];              // columns [8 w, + 8) of 32, for both rows and the next 32 columns
#pragma unroll
    for (int w = 0; w < 4; ++w) words[w] = LoadShared16(words_at + s * 512 + w * 16);
#pragma unroll
    for (int step = 0; step < 2; ++step) {  // of 32 columns
      const int in_block = 2 * s + step;
      if (in_block * scales_per_block % 4 == 0) {
        const uint32_t from = scales_at + in_block * scales_per_block / 4 * (kInt4TileRows * 4);
        low = LoadInt4Scale(from), high = LoadInt4Scale(from + 32);
      }
      uint32_t(&a)[8] = fragments[step];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        a[2 * w] = UnpackInt4Pair(step == 0 ? words[w].x : words[w].z, shift, mask, bias, low);
        a[2 * w + 1] = UnpackInt4Pair(step == 0 ? words[w].y : words[w].w, shift, mask, bias, high);
      }
      if (in_block == 0) {
        BarrierWait(ring.full + ring.stage, ring.parity);
        ProxyFence();  // rows were written by threads
      }
      const uint64_t b = MatrixDescriptor<kRowBytes>(
          ring.rows_at() + (2 * slice + s) * (Shape::kRows * kRowBytes) + step * 64);
      WgmmaBegin();
      Wgmma(sums, a[0], a[1], a[2], a[3], b, 1);
      Wgmma(sums, a[4], a[5], a[6], a[7], b + 2, 1);
      WgmmaCommit();
      WgmmaWait<1>();  // the other fragment and the previous stage are free
      if (in_block == 0 && previous >= 0 && releases) BarrierArrive(ring.empty + previous);
    }
  }
}

// Adds the sums of the slices, in their order, in the threads of the first slice.
template <typename Shape, int kCount>
__device__ __forceinline__ void AddSlices(int slice, float* parts, float (&sums)[kCount]) {
  const int thread = static_cast<int>(threadIdx.x) % Shape::kSliceThreads;
  if (slice > 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      parts[((slice - 1) * kCount + i) * Shape::kSliceThreads + thread] = sums[i];
  }
  asm volatile("bar.sync 1, %0;" ::"n"(Shape::kConsumers) : "memory");
  if (slice > 0) return;
#pragma unroll
  for (int other = 0; other < Shape::kSlices - 1; ++other) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      sums[i] += parts[(other * kCount + i) * Shape::kSliceThreads + thread];
  }
}

template <typename Shape>
__device__ __forceinline__ void Consume(const GroupedGemmParams& p, TileWalk walk,
                                        typename Shape::StageRing ring, WarpRing<Shape>& weights) {
  // Of two tiles in turn, so that the next tile's parts do not overwrite those that are read.
  constexpr int kPartsSize =
      Shape::kSlices > 1 ? (Shape::kSlices - 1) * Shape::kRows / 2 * Shape::kSliceThreads : 1;
  __shared__ float parts[2][kPartsSize];
  const int num_stages = Shape::NumStages(p.depth), slice = weights.slice();
  const int first_of_warp = static_cast<int>(threadIdx.x) % Shape::kSliceThreads / 32 * 16;
  int turn = 0;
  ExpertTile tile;
  int output_tile;
  while (walk.Next(tile, output_tile)) {
    ForRows<Shape>(tile.count, [&](auto& sums) {
      FenceAccumulators(sums);
      int previous = -1;  // stage whose wgmma may still be running
      uint32_t slot = 0;
#pragma unroll 1
      for (int at = 0; at < weights.num_blocks(); ++at, ring.Advance()) {
        const bool is_first = at % kSlotBlocks == 0;
        slot = is_first ? weights.Wait() : slot + weights.block_bytes();
        MultiplyBlock<Shape>(ring, slice, slot, weights.scales_per_block(), weights.fills(),
                             previous, sums);
        previous = ring.stage;
        if (!is_first || at + 1 == weights.num_blocks()) weights.Release();
      }
      WgmmaWait<0>();
      FenceAccumulators(sums);
      if (previous >= 0 && weights.fills()) BarrierArrive(ring.empty + previous);
      for (int at = weights.num_blocks(); at < num_stages; ++at, ring.Advance()) {
        BarrierWait(ring.full + ring.stage, ring.parity);  // the last slice may be shorter
        if (weights.fills()) BarrierArrive(ring.empty + ring.stage);
      }
      if constexpr (Shape::kSlices > 1) {
        AddSlices<Shape>(slice, parts[turn], sums);
        turn ^= 1;
        if (slice > 0) return;
      }
      StoreTile(p, tile, output_tile * Shape::kOutputs + first_of_warp, sums);
    });
  }
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    StreamInt4Kernel(Int4Weights weights, GroupedGemmParams p, bool tiles_are_older) {
  extern __shared__ char unaligned[];
  __shared__ uint64_t full[Shape::kStages], empty[Shape::kStages],
      slots_full[Shape::kWarps][Shape::kSlots];
  const uint32_t shared = (SharedAddress(unaligned) + 1023) & ~1023u;
  const typename Shape::StageRing ring = {shared, full, empty};
  if (threadIdx.x < Shape::kStages) {
    BarrierInit(full + threadIdx.x, 32 * Shape::kRowWarps);
    BarrierInit(empty + threadIdx.x, Shape::kWarps);
    BarrierInitFence();
  }
  for (int i = threadIdx.x; i < Shape::kWarps * Shape::kSlots; i += Shape::kThreads) {
    BarrierInit(&slots_full[0][0] + i, 1);
    BarrierInitFence();
  }
  __syncthreads();
  if (!tiles_are_older) WaitForPrevious();
  const TileWalk walk(p, Shape::kOutputs);
  if (threadIdx.x >= Shape::kConsumers) {
    if (tiles_are_older) WaitForPrevious();
    // Later than in other kernels, so that the kernel after the next one finds the tiles complete.
    LaunchNext();
    ProduceRows<Shape>(p, Shape::kConsumers, walk, ring);
    return;
  }
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int slot_bytes = kSlotBlocks * Int4BlockBytes(weights.scales_per_block);
  WarpRing<Shape> warp_ring(p, weights,
                            shared + Shape::kStagesBytes + warp * Shape::kSlots * slot_bytes,
                            slots_full[warp]);
  if (warp_ring.fills()) warp_ring.Start(walk);
  __syncwarp();
  if (tiles_are_older) WaitForPrevious();
  LaunchNext();
  Consume<Shape>(p, walk, ring, warp_ring);
}

template <typename Shape>
cudaError_t LaunchShape(const StreamExpertsParams& params, int num_processors,
                        cudaStream_t stream) {
  const WeightMatrix& weights = params.weights;
  return LaunchPersistent<Shape>(StreamInt4Kernel<Shape>, Shape::kThreads,
                                 Shape::SharedBytes(Int4BlockBytes(weights.scales_per_block)),
                                 params, num_processors, stream,
                                 Int4Weights{static_cast<const char*>(weights.data),
                                             params.stride_bytes, weights.scales_per_block},
                                 params.gemm, params.tiles_are_older);
}

}  // namespace

cudaError_t StreamInt4(const StreamExpertsParams& params, int num_processors, cudaStream_t stream) {
  const bool is_deep = params.gemm.depth >= kMinSlicedDepth;
  switch (params.gemm.tile_rows) {
    case 8:
      return is_deep ? LaunchShape<Int4Shape<8, 4, 4, 3, 4, 1>>(params, num_processors, stream)
                     : LaunchShape<Int4Shape<8, 1, 1, 4, 4, 4>>(params, num_processors, stream);
    case 16:
      return is_deep ? LaunchShape<Int4Shape<16, 4, 2, 3, 4, 1>>(params, num_processors, stream)
                     : LaunchShape<Int4Shape<16, 2, 1, 4, 4, 2>>(params, num_processors, stream);
    case 32:
      return LaunchShape<Int4Shape<32, 2, 1, 3, 4, 2>>(params, num_processors, stream);
    case 64:
      return LaunchShape<Int4Shape<64, 3, 1, 3, 5, 1>>(params, num_processors, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::stream_experts
