// Weights of split_gemm.cuh that the tensor cores read without conversion, bf16 or fp8: operand a
// in shared memory, in the same stages as the input.
#include "backends/gpu_llm/kernels/gemm/split_gemm.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::split_gemm {
namespace {

template <bool kIsFp8, int kRows>
class SharedOperand {
 public:
  static constexpr bool kUnpacks = false;
  static constexpr int kWeightBytes = kOutputs * kStageRowBytes;  // of a stage
  static constexpr int kStageBytes = kWeightBytes + kRows * kStageRowBytes;
  static constexpr int kStages = kRows <= 32 ? 6 : kRows <= 64 ? 5 : 4;
  static constexpr int kBarriers = 2 * kStages;
  static constexpr int kStepColumns = kStageRowBytes / (kIsFp8 ? 1 : 2);
  static constexpr int kSharedBytes = kStages * kStageBytes;

  __device__ SharedOperand(const SplitGemmParams&, uint32_t shared, uint64_t* barriers)
      : stages_(shared), full_(barriers), empty_(barriers + kStages) {}

  __device__ void Init(const TensorMaps& maps) {
    const int i = threadIdx.x;
    if (i < kBarriers) BarrierInit(full_ + i, i < kStages ? 1 : 4 * maps.groups);
  }

  __device__ void Prefetch(const TensorMaps& maps, const DepthSlice& slice, int first_output) {
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
  __device__ void FillWeights(const TensorMaps& maps, const DepthSlice& slice, int step, int stage,
                              int first_output) {
    BarrierExpect(full_ + stage, (maps.groups * kGroupOutputs + kRows) * kStageRowBytes);
    TensorCopy(stages_ + stage * kStageBytes, &maps.weights, (slice.begin + step) * kStepColumns,
               first_output, full_ + stage);
  }

  uint32_t stages_;
  uint64_t *full_, *empty_;
};

}  // namespace

KernelVariant Bf16Variant(int tile_rows, bool finishes) {
  if (tile_rows == 32)
    return MakeVariant<SharedOperand<false, 32>, 32>(finishes, {160, 78, 1200, 700});
  if (tile_rows == 64)
    return MakeVariant<SharedOperand<false, 64>, 64>(finishes, {200, 78, 1200, 1200});
  return MakeVariant<SharedOperand<false, 128>, 128>(finishes, {230, 93, 1200, 2500});
}

KernelVariant Fp8Variant(int tile_rows, bool finishes) {
  if (tile_rows == 32)
    return MakeVariant<SharedOperand<true, 32>, 32>(finishes, {170, 70, 1200, 700});
  if (tile_rows == 64)
    return MakeVariant<SharedOperand<true, 64>, 64>(finishes, {230, 70, 1200, 1200});
  return MakeVariant<SharedOperand<true, 128>, 128>(finishes, {265, 76, 1200, 2500});
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::split_gemm
