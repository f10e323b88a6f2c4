// The split-K GEMM for bf16 weights with equal shares instead of slices and clusters. Each
// multiprocessor runs one block of threads. The block loads the weights of its next tile of 256
// outputs while it computes the current one, so that its ring of stages never runs empty. As in
// split_gemm.cuh, weights are wgmma's operand a and the input is operand b, of 8 columns.
#include "backends/gpu_llm/kernels/gemm/equal_shares.cuh"
#include "backends/gpu_llm/kernels/gemm/split_gemm.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::split_gemm {
namespace {

constexpr int kRows = kShareRows;
constexpr int kStepColumns = kStageRowBytes / 2;
constexpr int kWeightBytes = kOutputs * kStageRowBytes;  // of a stage
constexpr int kStageBytes = kWeightBytes + kRows * kStageRowBytes;
constexpr int kStages = 6;
static_assert(kRows == 8);  // a thread has 4 sums
static_assert(kStages * kStageBytes + 1024 <= 227 * 1024);

// Steps of a block's share, in order.
class Cursor {
 public:
  __device__ __forceinline__ Cursor(const EqualShares& shares)
      : steps_a_tile_(shares.steps_a_tile()),
        tile_(shares.Begin(blockIdx.x) / steps_a_tile_),
        step_(shares.Begin(blockIdx.x) - tile_ * steps_a_tile_) {}
  __device__ __forceinline__ void Advance() {
    if (++step_ == steps_a_tile_) step_ = 0, ++tile_;
  }
  __device__ __forceinline__ int tile() const { return tile_; }
  __device__ __forceinline__ int step() const { return step_; }

 private:
  int steps_a_tile_, tile_, step_;
};

class Ring {
 public:
  __device__ Ring(uint32_t shared, uint64_t* barriers)
      : stages_(shared), full_(barriers), empty_(barriers + kStages) {}
  __device__ void Init() {
    const int i = threadIdx.x;
    if (i < 2 * kStages) BarrierInit(full_ + i, i < kStages ? 1 : kWarps);
  }

  // Weights do not depend on the previous kernel, the input does. By one thread.
  __device__ void Produce(const TensorMaps& maps, const EqualShares& shares, int num_steps) {
    Cursor weights(shares), input(shares);
    for (int i = 0; i < min(kStages, num_steps); ++i, weights.Advance())
      FillWeights(maps, weights, i);
    WaitForPrevious();
    StageRing<kStages> ring;
#pragma unroll 1
    for (int i = 0; i < num_steps; ++i, input.Advance(), ring.Advance()) {
      if (i >= kStages) {
        BarrierWait(empty_ + ring.stage, ring.parity ^ 1);
        FillWeights(maps, weights, ring.stage);
        weights.Advance();
      }
      TensorCopy(At(ring.stage) + kWeightBytes, &maps.in, input.step() * kStepColumns, 0,
                 full_ + ring.stage);
    }
  }

  // sums += the products of the next `num_steps` stages. By the consumer groups.
  __device__ __forceinline__ void Consume(int num_steps, StageRing<kStages>& ring,
                                          float (&sums)[kRows / 2]) {
    const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
    int previous = -1;  // stage whose wgmma may still be running
#pragma unroll 1
    for (int i = 0; i < num_steps; ++i) {
      BarrierWait(full_ + ring.stage, ring.parity);
      const uint32_t at = At(ring.stage);
      const uint64_t a = MatrixDescriptor<kStageRowBytes>(at + group * (64 * kStageRowBytes));
      const uint64_t b = MatrixDescriptor<kStageRowBytes>(at + kWeightBytes);
      WgmmaBegin();
#pragma unroll
      for (int k = 0; k < kStageRowBytes / 32; ++k) Wgmma(sums, a + 2 * k, b + 2 * k, 1);
      WgmmaCommit();
      WgmmaWait<1>();
      if (previous >= 0 && threadIdx.x % 32 == 0) BarrierArrive(empty_ + previous);
      previous = ring.stage;
      ring.Advance();
    }
    WgmmaWait<0>();
    if (threadIdx.x % 32 == 0) BarrierArrive(empty_ + previous);
  }

 private:
  __device__ __forceinline__ uint32_t At(int stage) const {
    return stages_ + stage * kStageBytes;
  }
  __device__ __forceinline__ void FillWeights(const TensorMaps& maps, const Cursor& at, int stage) {
    BarrierExpect(full_ + stage, kStageBytes);
    TensorCopy(At(stage), &maps.weights, at.step() * kStepColumns, at.tile() * kOutputs,
               full_ + stage);
  }

  uint32_t stages_;
  uint64_t *full_, *empty_;
};

__global__ void __launch_bounds__(kThreads + 128, 1)
    SharesKernel(const __grid_constant__ TensorMaps maps, SplitGemmParams p) {
  extern __shared__ char unaligned[];
  __shared__ uint64_t barriers[2 * kStages];
  const uint32_t shared = (SharedAddress(unaligned) + 1023) & ~1023u;
  LaunchNext();
  if (threadIdx.x == kConsumers) PrefetchMap(&maps.in), PrefetchMap(&maps.weights);
  Ring stages(shared, barriers);
  stages.Init();
  BarrierInitFence();
  __syncthreads();
  const EqualShares shares((p.weights.num_outputs + kOutputs - 1) / kOutputs,
                           (p.weights.depth + kStepColumns - 1) / kStepColumns);
  int at = shares.Begin(blockIdx.x);
  const int end = shares.Begin(blockIdx.x + 1);
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) stages.Produce(maps, shares, end - at);
    return;
  }
  WaitForPrevious();
  StageRing<kStages> ring;
  while (at < end) {
    const Piece piece = shares.PieceAt(at, end);
    at += piece.end - piece.begin;
    const int first_output = piece.tile * kOutputs;
    const WarpTile mine(p, first_output);
    const FullEnd end(p, first_output);
    const Epilogue<FullEnd> to(p, mine.tile, 0, nullptr, end);
    uint32_t before[2];
    to.LoadBefore(0, before);
    float sums[kRows / 2] = {};
    FenceAccumulators(sums);
    stages.Consume(piece.end - piece.begin, ring, sums);
    FenceAccumulators(sums);
    const auto slot = [&](int block, int which) {
      return reinterpret_cast<float4*>(p.scratch.partials) + (block * 2 + which) * kConsumers +
             threadIdx.x;
    };
    const bool is_whole = piece.begin == 0 && piece.end == shares.steps_a_tile();
    if (!is_whole && !AddPieces(
                         shares, piece, p.scratch.tickets, kWarps,
                         [&](int block, int which) {
                           __stcg(slot(block, which),
                                  make_float4(sums[0], sums[1], sums[2], sums[3]));
                         },
                         [&](int block, int which, bool is_first) {
                           const float4 part = __ldcg(slot(block, which));
                           const float values[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
                           for (int i = 0; i < 4; ++i)
                             sums[i] = is_first ? values[i] : sums[i] + values[i];
                         })) {
      continue;
    }
    if (mine.exists) to.Store(0, before, sums);
  }
}

}  // namespace

KernelVariant Bf16SharesVariant() {
  return {SharesKernel, kRows, kThreads, kStepColumns, kStages * kStageBytes + 1024, {}};
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::split_gemm
