// Int4 weights of split_gemm.cuh: operand a in registers. Each warp has its own ring for the blocks
// of 16 outputs and 128 columns of its tile (weight_format.h). A thread of the last group copies
// the weights to it, and begins before the previous kernel has ended. If the warp itself copied
// them, it would have too few registers for its products.
#include "backends/gpu_llm/kernels/gemm/int4_unpack.cuh"
#include "backends/gpu_llm/kernels/gemm/split_gemm.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::split_gemm {
namespace {

constexpr int kStageColumns = 64;
constexpr int kBlockStages = kInt4BlockColumns / kStageColumns;
constexpr int kSlotBytes = 2 * Int4BlockBytes(4);  // two consecutive blocks

template <int kRows>
class Int4Operand {
 public:
  static constexpr bool kMovesRegisters = true;
  static constexpr int kStages = kRows <= 64 ? 8 : 6;
  static constexpr int kStageBytes = kRows * kStageRowBytes;
  static constexpr int kSlots = kRows <= 64 ? 4 : 3;
  static constexpr int kBarriers = 2 * kStages + 2 * kWarps * kSlots;
  static constexpr int kStepColumns = kInt4BlockColumns;
  static constexpr int kSharedBytes = kStages * kStageBytes + kWarps * kSlots * kSlotBytes;

  __device__ Int4Operand(const SplitGemmParams& p, uint32_t shared, uint64_t* barriers)
      : stages_(shared),
        full_(barriers),
        empty_(barriers + kStages),
        slots_(shared + kStages * kStageBytes + Warp() * (kSlots * kSlotBytes)),
        slots_full_(barriers + 2 * kStages + Warp() * kSlots),
        block_bytes_(Int4BlockBytes(p.weights.scales_per_block)),
        scales_per_block_(p.weights.scales_per_block),
        weights_(static_cast<const char*>(p.weights.data)),
        num_outputs_(p.weights.num_outputs),
        num_blocks_(NumInt4Blocks(p.weights.depth)) {}

  __device__ void Init(const TensorMaps& maps) {
    const int i = threadIdx.x;
    if (i < kBarriers)
      BarrierInit(full_ + i, i >= kStages && i < 2 * kStages ? 4 * maps.groups : 1);
  }

  __device__ void Prefetch(const TensorMaps& maps, const DepthSlice& slice, int first_output) {
    if (!CopiesWeights(maps)) return;
    const int tile = first_output / kInt4TileRows + Warp();
    has_tile_ = tile * kInt4TileRows < num_outputs_;
    next_ = weights_ + (int64_t{tile} * num_blocks_ + slice.begin) * block_bytes_;
    blocks_left_ = slice.length();
    for (int slot = 0; slot < kSlots; ++slot) Fill(slot);
  }

  __device__ void Produce(const TensorMaps& maps, const DepthSlice& slice, int, int first_row) {
    if (CopiesWeights(maps)) {
      StageRing<kSlots> ring;
      while (blocks_left_ > 0) {
        BarrierWait(slots_full_ + kWarps * kSlots + ring.stage, ring.parity);
        Fill(ring.stage);
        ring.Advance();
      }
    }
    if (threadIdx.x != kConsumers) return;
    StageRing<kStages> ring;
    for (int i = 0; i < slice.length() * kBlockStages; ++i) {
      if (i >= kStages) BarrierWait(empty_ + ring.stage, ring.parity ^ 1);
      BarrierExpect(full_ + ring.stage, kStageBytes);
      TensorCopy(stages_ + ring.stage * kStageBytes, &maps.in,
                 (slice.begin * kBlockStages + i) * kStageColumns, first_row, full_ + ring.stage);
      ring.Advance();
    }
  }

  __device__ __forceinline__ void Consume(const DepthSlice& slice, float (&sums)[kRows / 2]) {
    const int lane = threadIdx.x % 32;
    WarpState now;
    now.shift = lane % 4 * 4;
    now.words = slots_ + lane / 4 * 64;
    now.scales = kInt4ValueBytes - lane / 4 * 60;
    now.full = SharedAddress(full_);
    now.stage = stages_;
    now.slot_full = SharedAddress(slots_full_);
    now.releases = lane == 0;
    now.KeepInRegisters();
    const uint32_t first_words = now.words, first_full = now.full, first_stage = now.stage,
                   first_slot_full = now.slot_full;
    uint32_t parity = 0, slot_parity = 0;
    int slot = 0;
#pragma unroll 1
    for (int left = slice.length(); left > 0; left -= 2) {
      BarrierWait(now.slot_full, slot_parity);
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        if (b == 1 && left == 1) break;
        MultiplyBlock(now, now.words + b * block_bytes_, parity, sums);
        now.stage += kBlockStages * kStageBytes;
        now.full += kBlockStages * 8;
        if (now.full == first_full + kStages * 8) {
          now.full = first_full, now.stage = first_stage;
          parity ^= 1;
        }
      }
      __syncwarp();
      if (now.releases) BarrierArrive(now.slot_full + kWarps * kSlots * 8);
      now.words += kSlotBytes, now.slot_full += 8;
      if (++slot == kSlots) {
        slot = 0, slot_parity ^= 1;
        now.words = first_words, now.slot_full = first_slot_full;
      }
    }
  }

 private:
  // Number of a consumer warp. A consumer thread gets that of its own warp. A lane of the last
  // group gets its lane number: that of the warp whose weights it copies, if it copies any.
  static __device__ __forceinline__ int Warp() {
    const auto thread = static_cast<int>(threadIdx.x);
    return thread < kConsumers ? thread / 32 : thread % 32;
  }
  // Of the last group, the second warp copies the weights: each lane those of one consumer warp.
  static __device__ __forceinline__ bool CopiesWeights(const TensorMaps& maps) {
    return threadIdx.x / 32 == kWarps + 1 && Warp() < 4 * maps.groups;
  }

  // A warp's position; addresses are in shared memory.
  struct WarpState {
    int shift;
    uint32_t words;   // of the slot, for the lane's rows
    uint32_t scales;  // relative to `words`
    uint32_t full;    // barrier of the stage
    uint32_t stage, slot_full;
    uint32_t previous = 0;  // barrier of the stage whose wgmma may still be running
    bool releases;
    uint32_t fragments[2][8];

    // Keeps the compiler from recomputing the values at their uses.
    __device__ __forceinline__ void KeepInRegisters() {
      asm volatile(""
                   : "+r"(shift), "+r"(words), "+r"(scales), "+r"(full), "+r"(stage),
                     "+r"(slot_full));
    }
  };

  __device__ __forceinline__ void MultiplyBlock(WarpState& now, uint32_t words_at, uint32_t parity,
                                                float (&sums)[kRows / 2]) {
    const uint64_t stage = MatrixDescriptor<kStageRowBytes>(now.stage);
    uint32_t mask, bias;
    asm("mov.b32 %0, %1;" : "=r"(mask) : "n"(kInt4Mask));
    asm("mov.b32 %0, %1;" : "=r"(bias) : "n"(kInt4Bias));
    Int4Scale low, high;  // of the lane's first row, and of the row 8 below
#pragma unroll
    for (int s = 0; s < kBlockStages; ++s) {
      uint4 words[4];  // columns [8 w, + 8) of 32, for both rows and the next 32 columns
#pragma unroll
      for (int w = 0; w < 4; ++w) words[w] = LoadShared16(words_at + s * 512 + w * 16);
#pragma unroll
      for (int step = 0; step < 2; ++step) {  // of 32 columns
        const int in_block = 2 * s + step;
        if (in_block * scales_per_block_ % 4 == 0) {
          const uint32_t from =
              words_at + now.scales + in_block * scales_per_block_ / 4 * (kInt4TileRows * 4);
          low = LoadInt4Scale(from), high = LoadInt4Scale(from + 32);
        }
        uint32_t(&a)[8] = now.fragments[step];
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          a[2 * w] =
              UnpackInt4Pair(step == 0 ? words[w].x : words[w].z, now.shift, mask, bias, low);
          a[2 * w + 1] =
              UnpackInt4Pair(step == 0 ? words[w].y : words[w].w, now.shift, mask, bias, high);
        }
        if (step == 0) BarrierWait(now.full + s * 8, parity);
        const uint64_t b = stage + (s * kStageBytes + step * 64) / 16;
        WgmmaBegin();
        Wgmma(sums, a[0], a[1], a[2], a[3], b, 1);
        Wgmma(sums, a[4], a[5], a[6], a[7], b + 2, 1);
        WgmmaCommit();
        WgmmaWait<1>();  // the other fragment and the previous stage are free
        if (step == 0) {
          if (now.previous != 0 && now.releases) BarrierArrive(now.previous);
          now.previous = now.full + (kStages + s) * 8;
        }
      }
    }
  }

  // Starts the copy of the next two blocks.
  __device__ void Fill(int slot) {
    if (blocks_left_ <= 0) return;
    const int bytes = min(2, blocks_left_) * block_bytes_;
    blocks_left_ -= 2;
    if (!has_tile_) {
      BarrierArrive(slots_full_ + slot);
      return;
    }
    BarrierExpect(slots_full_ + slot, bytes);
    BulkCopy(slots_ + slot * kSlotBytes, next_, bytes, slots_full_ + slot);
    next_ += bytes;
  }

  uint32_t stages_;
  uint64_t *full_, *empty_;
  uint32_t slots_;  // this warp's
  uint64_t* slots_full_;
  int block_bytes_, scales_per_block_;
  const char* weights_;
  int num_outputs_, num_blocks_;
  bool has_tile_ = false;
  const char* next_ = nullptr;
  int blocks_left_ = 0;
};

}  // namespace

KernelVariant Int4Variant(int tile_rows, bool finishes) {
  if (tile_rows == 32) return MakeVariant<Int4Operand<32>, 32>(finishes, {230, 135, 2300, 700});
  if (tile_rows == 64) return MakeVariant<Int4Operand<64>, 64>(finishes, {235, 160, 2300, 1200});
  return MakeVariant<Int4Operand<128>, 128>(finishes, {280, 225, 2300, 2500});
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::split_gemm
