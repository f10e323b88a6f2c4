// The kernel of the experts' GEMM for many rows. Two blocks of threads form a cluster and compute
// an item together: up to kMaxRows rows of an expert and 256 outputs, of which each block has 128.
// In a block, a producer thread copies the weights (operand a) and the rows (operand b) to a ring
// of stages; another copies int4 weights to a ring of their own, and consumers unpack them to
// registers. Each block of the cluster copies half of the rows, to both. Two consumer groups of
// four warps have 64 outputs each. Clusters take items in turn; the numbers of rows of the experts
// are read on the device.
//
// On an H200, 8,192 tokens, gate and up / down: Mixtral-8x7B 690 / 673 TFLOP/s (a dense product of
// cuBLASLt 750), Qwen3-30B-A3B 668 / 527. There L2 is busy 90 % of the time. In fp8 (on an H100)
// 1,351 / 1,454 and 1,145 / 822. 64 tokens: 3.1 of an H100's 3.2 TB/s in bf16 and fp8; int4 1.1,
// bound by unpacking. Clusters of four blocks are 4 % slower. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/gemm/expert_gemm_stages.cuh"
#include "backends/gpu_llm/kernels/gemm/int4_unpack.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::expert_gemm {

template <typename Format, int kMaxRows>
class Block {
  using Shape = StageShape<Format, kMaxRows>;
  static constexpr int kStepColumns = kStageRowBytes / Format::kElementBytes;

 public:
  __device__ Block(const ExpertGemmParams& p, uint32_t shared, uint64_t* barriers)
      : p_(p),
        stages_(shared),
        full_(barriers),
        empty_(barriers + Shape::kStages),
        slots_full_(barriers + 2 * Shape::kStages),
        slots_empty_(slots_full_ + Shape::kSlots),
        rank_(static_cast<int>(blockIdx.x) % kCluster),
        num_blocks_(NumInt4Blocks(p.weights.depth)),
        num_steps_(Format::kUnpacks ? num_blocks_ * (kInt4BlockColumns / kStepColumns)
                                    : (p.weights.depth + kStepColumns - 1) / kStepColumns) {}

  // Called by one thread.
  __device__ void Produce(const TensorMaps<kMaxRows>& maps) {
    StageRing<Shape::kStages> ring;
    int filled = 0;
    int num_early = 0;  // steps of the first item whose weights have been copied
    if (p_.copies_weights_early) {
      const ItemCursor<kMaxRows> cursor(p_);
      if (cursor.has_item()) num_early = min(Shape::kStages, num_steps_);
      for (int step = 0; step < num_early; ++step) ExpectStage(maps, cursor.item(), step, step);
    }
    WaitForPrevious();
    for (ItemCursor<kMaxRows> cursor(p_); cursor.has_item(); cursor.Advance()) {
      const Item item = cursor.item();
      const int boxes = (item.num_rows + kRowStep - 1) / kRowStep, rows = BlockRows(item);
      const void* in_map = &maps.in[boxes - 1];
      const int first_row = item.first_row + rank_ * rows;
      for (int step = 0; step < num_steps_; ++step) {
        if (filled < Shape::kStages) {
          ++filled;
        } else {
          BarrierWait(empty_ + ring.stage, ring.parity ^ 1);
        }
        if (step >= num_early) ExpectStage(maps, item, step, ring.stage);
        CopyToCluster(stages_ + ring.stage * Shape::kStageBytes + Shape::kWeightBytes +
                          rank_ * rows * kStageRowBytes,
                      in_map, step * kStepColumns, first_row, full_ + ring.stage);
        ring.Advance();
      }
      num_early = 0;
    }
  }

  // Copies weights that are unpacked. Called by one thread.
  __device__ void ProduceWeights() {
    if (!p_.copies_weights_early) WaitForPrevious();
    const int block_bytes = Int4BlockBytes(p_.weights.scales_per_block);
    const int num_tiles = p_.weights.num_outputs / kInt4TileRows;
    const int64_t tile_bytes = int64_t{num_blocks_} * block_bytes;
    StageRing<Shape::kSlots> ring;
    int filled = 0;
    for (ItemCursor<kMaxRows> cursor(p_); cursor.has_item(); cursor.Advance()) {
      const Item item = cursor.item();
      const int first_tile = (item.first_output + rank_ * kOutputs) / kInt4TileRows;
      const int tiles = max(0, min(kOutputs / kInt4TileRows, num_tiles - first_tile));
      const char* from = static_cast<const char*>(p_.weights.data) + item.expert * p_.stride_bytes +
                         first_tile * tile_bytes;
      for (int block = 0; block < num_blocks_; ++block) {
        if (filled < Shape::kSlots) {
          ++filled;
        } else {
          BarrierWait(slots_empty_ + ring.stage, ring.parity ^ 1);
        }
        BarrierExpect(slots_full_ + ring.stage, tiles * block_bytes);
        for (int tile = 0; tile < tiles; ++tile) {
          BulkCopy(
              stages_ + Shape::kSlotsOffset + ring.stage * Shape::kSlotBytes + tile * block_bytes,
              from + tile * tile_bytes + int64_t{block} * block_bytes, block_bytes,
              slots_full_ + ring.stage);
        }
        ring.Advance();
      }
    }
  }

  // Called by the consumer groups.
  __device__ void Consume() {
    group_ = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128 - 1, 0);
    for (ItemCursor<kMaxRows> cursor(p_); cursor.has_item();) {
      const Item item = cursor.item();
      switch ((item.num_rows + kRowStep - 1) / kRowStep) {
        case 1:
          ConsumeItem<32>(item, cursor);
          break;
        case 2:
          if constexpr (kMaxRows >= 64) ConsumeItem<64>(item, cursor);
          break;
        case 3:
          if constexpr (kMaxRows >= 96) ConsumeItem<96>(item, cursor);
          break;
        case 4:
          if constexpr (kMaxRows >= 128) ConsumeItem<128>(item, cursor);
          break;
        case 5:
          if constexpr (kMaxRows >= 160) ConsumeItem<160>(item, cursor);
          break;
        case 6:
          if constexpr (kMaxRows >= 192) ConsumeItem<192>(item, cursor);
          break;
        case 7:
          if constexpr (kMaxRows >= 224) ConsumeItem<224>(item, cursor);
          break;
        case 8:
          if constexpr (kMaxRows >= 256) ConsumeItem<256>(item, cursor);
          break;
      }
    }
  }

 private:
  // Rows that each block of the cluster copies to both.
  static __device__ __forceinline__ int BlockRows(const Item& item) {
    return (item.num_rows + kRowStep - 1) / kRowStep * (kRowStep / kCluster);
  }

  // Makes a stage's barrier expect a step's weights and rows, and copies the weights.
  __device__ __forceinline__ void ExpectStage(const TensorMaps<kMaxRows>& maps, const Item& item,
                                              int step, int stage) {
    BarrierExpect(full_ + stage, Shape::kWeightBytes + kCluster * BlockRows(item) * kStageRowBytes);
    if constexpr (!Format::kUnpacks) {
      CopyWeights(stages_ + stage * Shape::kStageBytes, &maps.weights, step * kStepColumns,
                  item.first_output + rank_ * kOutputs, item.expert, full_ + stage);
    }
  }

  // kRows: the item's rows, rounded up. Advances the cursor.
  template <int kRows>
  __device__ __forceinline__ void ConsumeItem(const Item& item, ItemCursor<kMaxRows>& cursor) {
    float sums[kRows / 2] = {};
    FenceAccumulators(sums);
    int previous = -1;  // stage whose wgmma may still be running
    if constexpr (Format::kUnpacks) {
      cursor.Advance();
      for (int block = 0; block < num_blocks_; ++block) MultiplyBlock<kRows>(sums, previous);
    } else if constexpr (Format::kHasBlocks) {
      MultiplyScaledSteps<kRows>(item, sums);
      cursor.Advance();
    } else {
      for (int step = 0; step < num_steps_; ++step) {
        MultiplyStep<kRows>(sums);
        if (step == 0) cursor.Advance();  // while the tensor cores are busy
        WgmmaWait<1>();
        if (previous >= 0) Release(previous);
        previous = ring_.stage;
        ring_.Advance();
      }
    }
    if constexpr (!Format::kHasBlocks) {
      WgmmaWait<0>();
      FenceAccumulators(sums);
      Release(previous);
    }
    if constexpr (Format::kScales) Scale<kRows>(item, sums);
    if (p_.output == GemmEpilogue::kSiluGate) {
      Store<kRows, true>(item, sums);
    } else if (Format::kStoresFloats && p_.output == GemmEpilogue::kFloat) {
      StoreFloats<kRows>(item, sums);
    } else {
      Store<kRows, false>(item, sums);
    }
  }

  // Issues the products of a stage without waiting.
  template <int kRows>
  __device__ __forceinline__ void MultiplyStep(float (&sums)[kRows / 2]) {
    BarrierWait(full_ + ring_.stage, ring_.parity);
    const uint32_t at = stages_ + ring_.stage * Shape::kStageBytes;
    const uint64_t a =
        MatrixDescriptor<kStageRowBytes>(at + group_ * (kGroupOutputs * kStageRowBytes));
    const uint64_t b = MatrixDescriptor<kStageRowBytes>(at + Shape::kWeightBytes);
    WgmmaBegin();
#pragma unroll
    for (int k = 0; k < kStageRowBytes / 32; ++k) Format::Multiply(sums, a + 2 * k, b + 2 * k);
    WgmmaCommit();
  }

  // All steps of an item, whose products are scaled before they are added to the sums.
  template <int kRows>
  __device__ __forceinline__ void MultiplyScaledSteps(const Item& item, float (&sums)[kRows / 2]) {
    // Rows whose products are in registers beside the sums of all rows.
    constexpr int kAtOnce = kRows < 128 ? kRows : 128, kOthers = kRows - kAtOnce;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const auto num_tiles = static_cast<int>(NumFp8Tiles(p_.weights.num_outputs));
    const int tile = (item.first_output + rank_ * kOutputs) / kFp8TileRows + warp - 4;
    const uint32_t* from =
        p_.weights.block_scales + item.expert * p_.scale_stride + min(tile, num_tiles - 1);
    uint32_t next = __ldg(from);
    for (int step = 0; step < num_steps_; ++step) {
      const uint32_t scales = next;
      from += num_tiles;
      if (step + 1 < num_steps_) next = __ldg(from);
      BarrierWait(full_ + ring_.stage, ring_.parity);
      MultiplyScaled<kAtOnce>(0, scales, sums);
      if constexpr (kOthers > 0) MultiplyScaled<kOthers>(kAtOnce, scales, sums + kAtOnce / 2);
      Release(ring_.stage);
      ring_.Advance();
    }
  }
  // kCount rows of the current stage, from first_row on. While a consumer group waits for its
  // products and adds them, the tensor cores multiply for the other group.
  template <int kCount>
  __device__ __forceinline__ void MultiplyScaled(int first_row, uint32_t scales, float* sums) {
    const uint32_t at = stages_ + ring_.stage * Shape::kStageBytes;
    const uint64_t a =
        MatrixDescriptor<kStageRowBytes>(at + group_ * (kGroupOutputs * kStageRowBytes));
    const uint64_t b =
        MatrixDescriptor<kStageRowBytes>(at + Shape::kWeightBytes + first_row * kStageRowBytes);
    float products[kCount / 2];
    FenceAccumulators(products);
    WgmmaBegin();
#pragma unroll
    for (int k = 0; k < kStageRowBytes / 32; ++k)
      WgmmaFp8(products, a + 2 * k, b + 2 * k, k == 0 ? 0 : 1);
    WgmmaCommit();
    WgmmaWait<0>();
    FenceAccumulators(products);
    AddScaledFp8(products, scales, sums);
  }

  // Unpacks a block of weights and multiplies it, a step of 32 columns at a time: while the tensor
  // cores multiply one, the next is unpacked.
  template <int kRows>
  __device__ __forceinline__ void MultiplyBlock(float (&sums)[kRows / 2], int& previous) {
    const int lane = static_cast<int>(threadIdx.x) % 32, shift = lane % 4 * 4;
    const int warp = static_cast<int>(threadIdx.x) / 32 - 4;
    const int scales_per_block = p_.weights.scales_per_block;
    const uint32_t values = stages_ + Shape::kSlotsOffset + slots_.stage * Shape::kSlotBytes +
                            warp * Int4BlockBytes(scales_per_block);
    uint32_t mask = kInt4Mask, bias = kInt4Bias;  // in registers
    asm volatile("" : "+r"(mask), "+r"(bias));
    Int4Scale low, high;  // of the lane's first row, and of the row 8 below
    BarrierWait(slots_full_ + slots_.stage, slots_.parity);
#pragma unroll
    for (int s = 0; s < kInt4BlockColumns / kStepColumns; ++s) {
      uint4 words[4];  // columns [8 w, + 8) of 32, for both rows and the next 32 columns
#pragma unroll
      for (int w = 0; w < 4; ++w)
        words[w] = LoadShared16(values + s * (kInt4ValueBytes / 2) + lane / 4 * 64 + w * 16);
#pragma unroll
      for (int step = 0; step < 2; ++step) {  // of 32 columns
        const int in_block = 2 * s + step;
        if (in_block * scales_per_block % 4 == 0) {
          const uint32_t from = values + kInt4ValueBytes + lane / 4 * 4 +
                                in_block * scales_per_block / 4 * (kInt4TileRows * 4);
          low = LoadInt4Scale(from), high = LoadInt4Scale(from + 32);
        }
        uint32_t(&a)[8] = fragments_[step];
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          a[2 * w] = UnpackInt4Pair(step == 0 ? words[w].x : words[w].z, shift, mask, bias, low);
          a[2 * w + 1] =
              UnpackInt4Pair(step == 0 ? words[w].y : words[w].w, shift, mask, bias, high);
        }
        if (step == 0) BarrierWait(full_ + ring_.stage, ring_.parity);
        const uint64_t b = MatrixDescriptor<kStageRowBytes>(
            stages_ + ring_.stage * Shape::kStageBytes + step * 64);
        WgmmaBegin();
        Wgmma(sums, a[0], a[1], a[2], a[3], b, 1);
        Wgmma(sums, a[4], a[5], a[6], a[7], b + 2, 1);
        WgmmaCommit();
        WgmmaWait<1>();  // the other fragment and the previous stage are free
        if (step == 0 && previous >= 0) Release(previous);
      }
      previous = ring_.stage;
      ring_.Advance();
    }
    __syncwarp();
    if (lane == 0) BarrierArrive(slots_empty_ + slots_.stage);
    slots_.Advance();
  }

  // This warp has finished with the stage: both blocks' producers may fill it.
  __device__ __forceinline__ void Release(int stage) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane < kCluster) ArriveInCluster(MapToClusterBlock(SharedAddress(empty_ + stage), lane));
  }

  // The layout of `sums`: Store().
  template <int kRows>
  __device__ __forceinline__ void Scale(const Item& item, float (&sums)[kRows / 2]) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int output = item.first_output + rank_ * kOutputs + (warp - 4) * 16 + lane / 4;
    const float* row_scales = p_.weights.row_scales + item.expert * p_.scale_stride;
    const int last = p_.weights.num_outputs - 1;
    const float low = __ldg(row_scales + min(output, last)),
                high = __ldg(row_scales + min(output + 8, last));
    const float* in_scales = p_.in_scales + item.first_row;
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
      float* d = sums + 4 * j;
      const int row = 8 * j + lane % 4 * 2, last_row = item.num_rows - 1;
      const float first = __ldg(in_scales + min(row, last_row)),
                  second = __ldg(in_scales + min(row + 1, last_row));
      d[0] *= first * low, d[1] *= second * low;
      d[2] *= first * high, d[3] *= second * high;
    }
  }

  __device__ __forceinline__ void GroupSync() {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group_) : "memory");
  }

  // The layout of `sums`: Store(). For few outputs.
  template <int kRows>
  __device__ __forceinline__ void StoreFloats(const Item& item, const float (&sums)[kRows / 2]) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int output = item.first_output + rank_ * kOutputs + (warp - 4) * 16 + lane / 4;
    const int num_outputs = p_.weights.num_outputs;
    float* out = static_cast<float*>(p_.out) + int64_t{item.first_row} * num_outputs + output;
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      const int row = i / 4 * 8 + lane % 4 * 2 + i % 2, further = i % 4 / 2 * 8;
      if (row < item.num_rows && output + further < num_outputs)
        out[int64_t{row} * num_outputs + further] = sums[i];
    }
  }

  // Stores the group's outputs. A thread has d[0 .. 3] of 8 rows of the item: outputs g and g + 8
  // of its warp's 16 for rows 2 t and 2 t + 1. They are transposed in shared memory, whose rows are
  // those of `out`, in chunks of 16 bytes that are permuted by the row against bank conflicts.
  template <int kRows, bool kGates>
  __device__ __forceinline__ void Store(const Item& item, float (&sums)[kRows / 2]) {
    constexpr int kOutRowBytes = kGates ? kGroupOutputs : 2 * kGroupOutputs;
    constexpr int kChunks = kOutRowBytes / 16;  // of a row, a power of two
    constexpr int kStaged = kRows < Shape::kStagingRows ? kRows : Shape::kStagingRows;
    constexpr int kColumnsAtOnce = kGates ? 4 : 2;  // of the sums, each for 8 rows
    const auto offset = [](int row, int chunk) {
      const int permuted = chunk ^ (kGates ? row / 2 : row) % kChunks;
      return row * kOutRowBytes + permuted * 16;
    };
    const int thread = static_cast<int>(threadIdx.x) % 128, warp = thread / 32, lane = thread % 32;
    const uint32_t staging = stages_ + Shape::kStagingOffset + group_ * Shape::kStagingBytes;
    const int row_size = kGates ? p_.weights.num_outputs / 2 : p_.weights.num_outputs;
    const int first_output = item.first_output + rank_ * kOutputs + group_ * kGroupOutputs;
    const int column = (kGates ? first_output / 2 : first_output) + thread % kChunks * 8;
    bf16* out = static_cast<bf16*>(p_.out) + int64_t{item.first_row} * row_size + column;
#pragma unroll
    for (int first = 0; first < kRows; first += kStaged) {
      GroupSync();  // the group has read what was there before
#pragma unroll
      for (int j = first / 8; j < (first + kStaged) / 8 && j < kRows / 8; j += kColumnsAtOnce) {
        uint32_t values[4];
        int row, chunk;
        if constexpr (kGates) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float* d = sums + 4 * (j + i);
            float gated[2];
#pragma unroll
            for (int b = 0; b < 2; ++b)
              gated[b] = __fdividef(d[b], 1.0f + __expf(-d[b])) * d[2 + b];
            values[i] = PackBf16(gated[0], gated[1]);
          }
          row = 8 * j - first + lane, chunk = warp;
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            values[i] = PackBf16(sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1]);
          row = 8 * j - first + lane / 16 * 8 + lane % 8, chunk = 2 * warp + lane / 8 % 2;
        }
        StoreMatrices(staging + offset(row, chunk), values);
      }
      GroupSync();
      if (column < row_size) {
#pragma unroll 4
        for (int row = thread / kChunks; row < kStaged; row += 128 / kChunks) {
          if (first + row >= item.num_rows) break;
          uint4 value;
          asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                       : "r"(staging + offset(row, thread % kChunks))
                       : "memory");
          uint4* to = reinterpret_cast<uint4*>(out + int64_t{first + row} * row_size);
          *to = !kGates && p_.output == GemmEpilogue::kAdd ? AddBf16(*to, value) : value;
        }
      }
    }
  }

  const ExpertGemmParams& p_;
  uint32_t stages_;
  uint64_t *full_, *empty_, *slots_full_, *slots_empty_;
  int rank_, num_blocks_, num_steps_, group_ = 0;
  // A consumer's position, and weights that it has unpacked.
  StageRing<Shape::kStages> ring_;
  StageRing<Shape::kSlots> slots_;
  uint32_t fragments_[2][8];
};

template <typename Format, int kMaxRows>
__global__ void __launch_bounds__(kThreads, 1)
    ExpertGemmKernel(const __grid_constant__ TensorMaps<kMaxRows> maps,
                     const __grid_constant__ ExpertGemmParams p) {
  using Shape = StageShape<Format, kMaxRows>;
  extern __shared__ char unaligned[];
  __shared__ uint64_t barriers[Shape::kBarriers];
  const uint32_t shared = (SharedAddress(unaligned) + 1023) & ~1023u;
  LaunchNext();
  if (threadIdx.x == 0) {
    if constexpr (!Format::kUnpacks) PrefetchMap(&maps.weights);
    for (int i = 0; i < Shape::kStages; ++i) {
      BarrierInit(barriers + i, 1);
      BarrierInit(barriers + Shape::kStages + i, kCluster * kConsumers / 32);
    }
    for (int i = 0; i < Shape::kSlots; ++i) {
      BarrierInit(barriers + 2 * Shape::kStages + i, 1);
      BarrierInit(barriers + 2 * Shape::kStages + Shape::kSlots + i, kConsumers / 32);
    }
    BarrierInitFence();
  }
  ClusterArrive();
  ClusterWait();  // the barriers of both blocks are initialized
  Block<Format, kMaxRows> block(p, shared, barriers);
  if (threadIdx.x < 128) {
    ReleaseRegisters<40>();
    if (threadIdx.x == 0) block.Produce(maps);
    if (Format::kUnpacks && threadIdx.x == 32) block.ProduceWeights();
    __syncwarp();
  } else {
    AcquireRegisters<232>();
    WaitForPrevious();
    block.Consume();
  }
  // A block's shared memory exists until the other one has stopped writing to it.
  ClusterArrive();
  ClusterWait();
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::expert_gemm
