// Weights of split_gemm.cuh that the tensor cores read without conversion, bf16 or fp8: operand a
// in shared memory, in the same stages as the input. A step of fp8 weights has the columns of their
// blocks: where blocks have scales, the products of a step are multiplied by them before they are
// added to the sums.
#include "backends/gpu_llm/kernels/gemm/split_gemm.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::split_gemm {
namespace {

template <bool kIsFp8, bool kOfBlocks, int kRows>
class SharedOperand {
 public:
  static constexpr bool kHasBlocks = kOfBlocks, kMovesRegisters = kHasBlocks && kRows > 32;
  static constexpr int kWeightBytes = kOutputs * kStageRowBytes;  // of a stage
  static constexpr int kStageBytes = kWeightBytes + kRows * kStageRowBytes;
  static constexpr int kStages = kRows <= 32 ? 6 : kRows <= 64 ? 5 : 4;
  static constexpr int kBarriers = 2 * kStages;
  static constexpr int kStepColumns = kStageRowBytes / (kIsFp8 ? 1 : 2);
  static constexpr int kSharedBytes = kStages * kStageBytes;
  static_assert(!kHasBlocks || kStepColumns == kFp8BlockColumns);

  __device__ SharedOperand(const SplitGemmParams& p, uint32_t shared, uint64_t* barriers)
      : p_(p), stages_(shared), full_(barriers), empty_(barriers + kStages) {}

  __device__ void Init(const TensorMaps& maps) {
    const int i = threadIdx.x;
    if (i < kBarriers) BarrierInit(full_ + i, i < kStages ? 1 : 4 * maps.groups);
  }

  __device__ void Prefetch(const TensorMaps& maps, const DepthSlice& slice, int first_output) {
    if constexpr (kHasBlocks) {
      tile_scales_ = p_.weights.block_scales + WarpTile(p_, first_output).tile;
      next_scales_ = LoadScales(slice.begin);
    }
    if (threadIdx.x != kConsumers) return;
    for (int i = 0; i < min(kStages, slice.length()); ++i)
      FillWeights(maps, slice, i, i, first_output);
  }

  __device__ void Produce(const TensorMaps& maps, const DepthSlice& slice, int first_output,
                          int first_row) {
    if (threadIdx.x != kConsumers) return;
    StageRing<kStages> ring;
#pragma unroll 1
    for (int i = 0; i < slice.length(); ++i) {
      if (i >= kStages) {
        BarrierWait(empty_ + ring.stage, ring.parity ^ 1);
        FillWeights(maps, slice, i, ring.stage, first_output);
      }
      TensorCopy(stages_ + ring.stage * kStageBytes + kWeightBytes, &maps.in,
                 (slice.begin + i) * kStepColumns, first_row, full_ + ring.stage);
      ring.Advance();
    }
  }

  __device__ __forceinline__ void Consume(const DepthSlice& slice, float (&sums)[kRows / 2]) {
    const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
    if constexpr (kHasBlocks) return ConsumeBlocks(slice, group, sums);
    StageRing<kStages> ring;
    int previous = -1;  // stage whose wgmma may still be running
#pragma unroll 1
    for (int i = 0; i < slice.length(); ++i) {
      BarrierWait(full_ + ring.stage, ring.parity);
      const uint32_t at = stages_ + ring.stage * kStageBytes;
      const uint64_t a = MatrixDescriptor<kStageRowBytes>(at + group * (64 * kStageRowBytes));
      const uint64_t b = MatrixDescriptor<kStageRowBytes>(at + kWeightBytes);
      WgmmaBegin();
#pragma unroll
      for (int k = 0; k < kStageRowBytes / 32; ++k) {
        if constexpr (kIsFp8) {
          WgmmaFp8(sums, a + 2 * k, b + 2 * k);
        } else {
          Wgmma(sums, a + 2 * k, b + 2 * k, 1);
        }
      }
      WgmmaCommit();
      WgmmaWait<1>();
      if (previous >= 0 && threadIdx.x % 32 == 0) BarrierArrive(empty_ + previous);
      previous = ring.stage;
      ring.Advance();
    }
  }

 private:
  // While the tensor cores multiply a step, the products of the step before are scaled and added.
  __device__ __forceinline__ void ConsumeBlocks(const DepthSlice& slice, int group,
                                                float (&sums)[kRows / 2]) {
    StageRing<kStages> ring;
    int step = slice.begin;
    const auto multiply = [&](BlockProducts& to) {
      to.scales = next_scales_, to.stage = ring.stage;
      if (step + 1 < slice.end) next_scales_ = LoadScales(step + 1);
      BarrierWait(full_ + ring.stage, ring.parity);
      const uint32_t at = stages_ + ring.stage * kStageBytes;
      const uint64_t a = MatrixDescriptor<kStageRowBytes>(at + group * (64 * kStageRowBytes));
      const uint64_t b = MatrixDescriptor<kStageRowBytes>(at + kWeightBytes);
      FenceAccumulators(to.values);
      WgmmaBegin();
#pragma unroll
      for (int k = 0; k < kStageRowBytes / 32; ++k)
        WgmmaFp8(to.values, a + 2 * k, b + 2 * k, k == 0 ? 0 : 1);
      WgmmaCommit();
      ring.Advance();
      ++step;
    };
    const auto add = [&](BlockProducts& from) {
      FenceAccumulators(from.values);
      if (threadIdx.x % 32 == 0) BarrierArrive(empty_ + from.stage);
      AddScaledFp8(from.values, from.scales, sums);
    };
    BlockProducts even, odd;
    multiply(even);
#pragma unroll 1
    while (true) {
      if (step == slice.end) return WgmmaWait<0>(), add(even);
      multiply(odd);
      WgmmaWait<1>();
      add(even);
      if (step == slice.end) return WgmmaWait<0>(), add(odd);
      multiply(even);
      WgmmaWait<1>();
      add(odd);
    }
  }
  struct BlockProducts {
    float values[kRows / 2];
    uint32_t scales;
    int stage;
  };

  // The block scales of this warp's outputs in a step.
  __device__ __forceinline__ uint32_t LoadScales(int step) const {
    return __ldg(tile_scales_ + step * NumFp8Tiles(p_.weights.num_outputs));
  }
  __device__ void FillWeights(const TensorMaps& maps, const DepthSlice& slice, int step, int stage,
                              int first_output) {
    BarrierExpect(full_ + stage, (maps.groups * kGroupOutputs + kRows) * kStageRowBytes);
    TensorCopy(stages_ + stage * kStageBytes, &maps.weights, (slice.begin + step) * kStepColumns,
               first_output, full_ + stage);
  }

  const SplitGemmParams& p_;
  uint32_t stages_;
  uint64_t *full_, *empty_;
  const uint32_t* tile_scales_ = nullptr;  // of the first columns
  uint32_t next_scales_ = 0;
};

}  // namespace

KernelVariant Bf16Variant(int tile_rows, bool finishes) {
  if (tile_rows == 32)
    return MakeVariant<SharedOperand<false, false, 32>, 32>(finishes, {160, 78, 1200, 700});
  if (tile_rows == 64)
    return MakeVariant<SharedOperand<false, false, 64>, 64>(finishes, {200, 78, 1200, 1200});
  return MakeVariant<SharedOperand<false, false, 128>, 128>(finishes, {230, 93, 1200, 2500});
}

KernelVariant Fp8Variant(int tile_rows, bool finishes) {
  if (tile_rows == 32)
    return MakeVariant<SharedOperand<true, false, 32>, 32>(finishes, {170, 70, 1200, 700});
  if (tile_rows == 64)
    return MakeVariant<SharedOperand<true, false, 64>, 64>(finishes, {230, 70, 1200, 1200});
  return MakeVariant<SharedOperand<true, false, 128>, 128>(finishes, {265, 76, 1200, 2500});
}

KernelVariant Fp8BlocksVariant(int tile_rows, bool finishes) {
  if (tile_rows == 32)
    return MakeVariant<SharedOperand<true, true, 32>, 32>(finishes, {170, 70, 1200, 700});
  return MakeVariant<SharedOperand<true, true, 64>, 64>(finishes, {230, 70, 1200, 1200});
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::split_gemm
