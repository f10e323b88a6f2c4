// The stream GEMM for int4 weights. Inputs of up to kByteRows rows are multiplied as bytes
// (stream_bytes.cuh) if they fit in shared memory, all others in bf16 (stream_gemm.cuh).
#include "backends/gpu_llm/kernels/gemm/stream_bytes.cuh"
#include "backends/gpu_llm/kernels/gemm/stream_gemm.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace stream_gemm {
namespace {

using namespace stream_bytes;
using Stage = StageShape<WeightFormat::kInt4>;

template <bool kOneScale>
__global__ void __launch_bounds__(32 * (Stage::kWarps + Stage::kProducers), 1)
    StreamBytesKernel(StreamGemmParams p, int num_stages, int warps_a_row) {
  constexpr int kWarps = Stage::kWarps;
  extern __shared__ __align__(128) char ring[];
  __shared__ uint64_t full[kMaxStages], empty[kMaxStages];
  __shared__ float2 parts[2][kWarps][32];
  __shared__ float squares[kByteRows][kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int depth = p.weights.depth, scales_per_block = p.weights.scales_per_block;
  const int stage_bytes = Stage::Bytes(scales_per_block);
  LaunchNext();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < num_stages; ++stage) {
      BarrierInit(full + stage, 1);
      BarrierInit(empty + stage, kWarps);
    }
    BarrierInitFence();
  }
  __syncthreads();
  if (warp >= kWarps) return Produce<WeightFormat::kInt4>(p, num_stages, ring, full, empty);
  WaitForPrevious();
  const ByteInput input(ring + num_stages * stage_bytes, depth, p.num_rows);
  FillBytes<kWarps>(p, warps_a_row, input, squares);
  SyncConsumers<kWarps>();
  // Of each tile that its warp adds up, a lane stores outputs g and g + 8 of row t.
  float factor = 1.0f;
  if (t < p.num_rows && p.norm_weight != nullptr) {
    float sum = 0.0f;
    for (int i = 0; i < warps_a_row; ++i) sum += squares[t][i];
    factor = rsqrtf(sum / static_cast<float>(depth) + p.epsilon);
  }
  const RuntimeActivation activation(p.activation);
  const int num_tiles = p.weights.num_outputs / kTileOutputs;
  const int num_blocks = NumInt4Blocks(depth);
  int stage = 0, parity = 0, turn = 0;
  for (int tile = blockIdx.x; tile < num_tiles; tile += gridDim.x, ++turn) {
    // The warps take turns at adding up all warps' sums of a tile. Those of the next tile are
    // written to the other buffer, so that the others need not wait for this warp.
    const bool stores = turn % kWarps == warp && t < p.num_rows;
    float added[2] = {};
    if (stores) LoadAdded(p, tile * kTileOutputs + g, t, added);
    float totals[2] = {};
    for (int first = 0; first < num_blocks; first += kWarps) {
      const bool has_block = first + warp < num_blocks;
      BlockInput x;
      if (has_block) x.Load(input, first + warp);
      BarrierWait(full + stage, parity);
      if (has_block) {
        WeightBlock<kOneScale> weights;
        weights.Load(
            ring + stage * stage_bytes + warp * Int4BlockBytes(scales_per_block), scales_per_block,
            [](const uint4* from) { return *from; }, [](const uint32_t* from) { return *from; });
        MultiplyBlock(weights, x, totals);
      }
      __syncwarp();
      if (lane == 0) BarrierArrive(empty + stage);
      if (++stage == num_stages) stage = 0, parity ^= 1;
    }
    parts[turn % 2][warp][lane] = {totals[0], totals[1]};
    SyncConsumers<kWarps>();
    if (!stores) continue;
    float low = 0.0f, high = 0.0f;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      const float2 part = parts[turn % 2][i][lane];
      low += part.x, high += part.y;
    }
    Store(p, tile * kTileOutputs, g, t, low * factor, high * factor, added, activation);
  }
}

void LaunchBytes(const StreamGemmParams& p, const StreamGemmPlan& plan, int num_processors,
                 cudaStream_t stream) {
  constexpr int kWarps = Stage::kWarps;
  const int scales = p.weights.scales_per_block;
  const int shared_bytes =
      std::max(plan.num_stages * Stage::Bytes(scales) + plan.input_bytes, kMinSharedBytes);
  int warps_a_row = kWarps;
  while (warps_a_row * p.num_rows > kWarps) warps_a_row /= 2;
  const auto launch = [&](auto kernel) {
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    Launch(kernel, std::min(p.weights.num_outputs / kTileOutputs, num_processors),
           32 * (kWarps + Stage::kProducers), shared_bytes, stream, p, plan.num_stages,
           warps_a_row);
  };
  scales == 1 ? launch(StreamBytesKernel<true>) : launch(StreamBytesKernel<false>);
}

}  // namespace
}  // namespace stream_gemm

void StreamGemmInt4(const StreamGemmParams& params, int num_processors, cudaStream_t stream) {
  using namespace stream_gemm;
  const StreamGemmPlan plan =
      PlanFor<WeightFormat::kInt4>(params.weights, params.num_rows, params.norm_weight != nullptr);
  if (plan.in_bytes) return LaunchBytes(params, plan, num_processors, stream);
  LaunchFormat<WeightFormat::kInt4>(params, num_processors, stream);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
