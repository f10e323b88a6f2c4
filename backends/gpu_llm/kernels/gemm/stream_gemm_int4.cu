// The stream GEMM for int4 weights. Up to kByteRows rows are multiplied as bytes
// (stream_bytes.cuh), unless the input does not fit in shared memory as bytes.
#include "backends/gpu_llm/kernels/gemm/stream_bytes.cuh"
#include "backends/gpu_llm/kernels/gemm/stream_gemm.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace stream_gemm {
namespace {

using namespace stream_bytes;
using Stage = StageShape<WeightFormat::kInt4>;

// The sums that the warps have of a tile. The warps take turns at adding them, so that the others
// begin the next tile at once.
struct TileSums {
  static constexpr int kBuffers = 4;

  float2 parts[kBuffers][Stage::kWarps][32];
  uint64_t written[kBuffers], read[kBuffers];

  __device__ void Init() {
    for (int i = 0; i < kBuffers; ++i) {
      BarrierInit(written + i, Stage::kWarps);
      BarrierInit(read + i, 1);
    }
  }
  // Stores this warp's sums of its `turn`-th tile.
  __device__ __forceinline__ void Put(int turn, float2 sums) {
    const int buffer = turn % kBuffers, round = turn / kBuffers;
    if (round > 0) BarrierWait(read + buffer, (round - 1) & 1);
    parts[buffer][threadIdx.x / 32][threadIdx.x % 32] = sums;
    __syncwarp();
    if (threadIdx.x % 32 == 0) BarrierArrive(written + buffer);
  }
  // Called by one warp for each turn. Returns the sums of this lane's outputs.
  __device__ __forceinline__ float2 Take(int turn) {
    const int buffer = turn % kBuffers;
    BarrierWait(written + buffer, turn / kBuffers & 1);
    float2 sums = {};
#pragma unroll
    for (int warp = 0; warp < Stage::kWarps; ++warp) {
      const float2 part = parts[buffer][warp][threadIdx.x % 32];
      sums.x += part.x, sums.y += part.y;
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) BarrierArrive(read + buffer);
    return sums;
  }
};

template <bool kOneScale>
__global__ void __launch_bounds__(32 * (Stage::kWarps + Stage::kProducers), 1)
    StreamBytesKernel(StreamGemmParams p, int num_stages, int warps_a_row) {
  constexpr int kWarps = Stage::kWarps;
  extern __shared__ __align__(128) char ring[];
  __shared__ uint64_t full[kMaxStages], empty[kMaxStages];
  __shared__ TileSums tile_sums;
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
    tile_sums.Init();
    BarrierInitFence();
  }
  __syncthreads();
  if (warp >= kWarps) return Produce<WeightFormat::kInt4>(p, num_stages, ring, full, empty);
  WaitForPrevious();
  const ByteInput input(ring + num_stages * stage_bytes, depth, p.num_rows);
  FillBytes<kWarps>(p, warps_a_row, input, squares);
  SyncConsumers<kWarps>();
  // A lane stores outputs g and g + 8 of a tile for row t.
  float factor = 1.0f;
  if (t < p.num_rows && p.norm_weight != nullptr) {
    float sum = 0.0f;
    for (int i = 0; i < warps_a_row; ++i) sum += squares[t][i];
    factor = rsqrtf(sum / static_cast<float>(depth) + p.epsilon);
  }
  const RuntimeActivation activation(p.activation);
  const int num_tiles = p.weights.num_outputs / kTileOutputs;
  const int num_blocks = (depth + kInt4BlockColumns - 1) / kInt4BlockColumns;
  int stage = 0, parity = 0, turn = 0;
  for (int tile = blockIdx.x; tile < num_tiles; tile += gridDim.x, ++turn) {
    const bool finishes = turn % kWarps == warp, stores = finishes && t < p.num_rows;
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
    tile_sums.Put(turn, {totals[0], totals[1]});
    if (!finishes) continue;
    const float2 sums = tile_sums.Take(turn);
    if (!stores) continue;
    Store(p, tile * kTileOutputs, g, t, sums.x * factor, sums.y * factor, added, activation);
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
