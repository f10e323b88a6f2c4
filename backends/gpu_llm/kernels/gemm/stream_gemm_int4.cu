// The stream GEMM for int4 weights. Up to kByteRows rows are multiplied as bytes (int4_bytes.cuh):
// unpacking takes three instructions for eight weights instead of eleven, and a product of the
// tensor cores has twice the depth and four rows. Every block of threads converts the whole input
// to bytes in its shared memory, with the norm, and begins before the previous kernel has ended to
// copy weights. Inputs that do not fit there are multiplied in bf16.
#include "backends/gpu_llm/kernels/gemm/int4_bytes.cuh"
#include "backends/gpu_llm/kernels/gemm/stream_gemm.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace stream_gemm {
namespace {

using Stage = StageShape<WeightFormat::kInt4>;

// The input in shared memory. A block is the part of a row that belongs to a block of weights:
// kInt4BlockColumns columns.
struct ByteInput {
  // Of each block and row 16 words of 16 bytes: (half of the columns, high or low bytes, t). A word
  // has what lane 4 g + t multiplies in the two steps of that half.
  uint4* words;
  int4* sums;  // of the integers of each step of 32 columns
  float* scales;
  int num_rows;

  // Columns of operand b without a row get the first row; nobody uses their sums.
  __device__ int Row(int row) const { return row < num_rows ? row : 0; }

  __device__ ByteInput(char* shared, int depth, int rows) : num_rows(rows) {
    const int count = (depth + kInt4BlockColumns - 1) / kInt4BlockColumns * rows;
    words = reinterpret_cast<uint4*>(shared);
    sums = reinterpret_cast<int4*>(words + 16 * count);
    scales = reinterpret_cast<float*>(sums + count);
  }
};

// Converts the input rows, multiplied by the norm's weights if there is a norm. Half a warp
// converts a block. `squares`: as in FillInput().
template <int kWarps>
__device__ void FillBytes(const StreamGemmParams& p, int warps_a_row, const ByteInput& input,
                          float (*squares)[kWarps]) {
  constexpr int kAtOnce = 4;  // blocks whose loads are under way together
  const int warp = threadIdx.x / 32, half = threadIdx.x % 32 / 16, part = threadIdx.x % 16;
  const int depth = p.weights.depth;
  const int num_blocks = (depth + kInt4BlockColumns - 1) / kInt4BlockColumns;
  for (int row = warp / warps_a_row; row < p.num_rows; row += kWarps / warps_a_row) {
    const int64_t from_row = p.rows != nullptr ? p.rows[row] : row;
    const bf16* const from = p.in + from_row * depth;
    float squared = 0.0f;
    for (int first = 2 * (warp % warps_a_row); first < num_blocks;
         first += 2 * warps_a_row * kAtOnce) {
      uint4 loaded[kAtOnce], norms[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int column = (first + 2 * warps_a_row * i + half) * kInt4BlockColumns + 8 * part;
        loaded[i] = norms[i] = {};
        if (column >= depth) continue;
        loaded[i] = *reinterpret_cast<const uint4*>(from + column);
        if (p.norm_weight != nullptr)
          norms[i] = *reinterpret_cast<const uint4*>(p.norm_weight + column);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int block = first + 2 * warps_a_row * i + half;
        if (block - half >= num_blocks) break;
        float values[8];
        Unpack8(loaded[i], values);
        if (p.norm_weight != nullptr) {
          float weights[8];
          Unpack8(norms[i], weights);
#pragma unroll
          for (int j = 0; j < 8; ++j) squared += values[j] * values[j], values[j] *= weights[j];
        }
        uint32_t largest = LargestMagnitude(values);
#pragma unroll
        for (int lanes = 8; lanes > 0; lanes /= 2)
          largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));
        const ByteScale scale(largest);
        InputBytes bytes = ToInputBytes(values, scale.factor());
        bytes.sum += __shfl_xor_sync(0xffffffffu, bytes.sum, 1);  // of the four lanes of a step
        bytes.sum += __shfl_xor_sync(0xffffffffu, bytes.sum, 2);
        if (block >= num_blocks) continue;
        const int at = block * p.num_rows + row, step = part / 4, t = part % 4;
        uint2* const words = reinterpret_cast<uint2*>(input.words + 16 * at + step / 2 * 8 + t);
        words[step % 2] = bytes.high;
        words[8 + step % 2] = bytes.low;
        if (t == 0) reinterpret_cast<int32_t*>(input.sums + at)[step] = bytes.sum;
        if (part == 0) input.scales[at] = scale.scale();
      }
    }
    squared = WarpSum(squared);
    if (threadIdx.x % 32 == 0) squares[row][warp % warps_a_row] = squared;
  }
}

// The input of a block of weights in registers. A row is two of the eight columns of operand b.
struct BlockInput {
  uint4 words[2];  // of the row that is this lane's column
  int4 sums;       // of the row whose sums this lane has
  float scale;

  __device__ __forceinline__ void Load(const ByteInput& input, int block) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int first = block * input.num_rows;
    const uint4* const from = input.words + 16 * (first + input.Row(g / 2)) + g % 2 * 4 + t;
    words[0] = from[0], words[1] = from[8];
    sums = input.sums[first + input.Row(t)], scale = input.scales[first + input.Row(t)];
  }
};

// totals[i] += a block of weights x input: output g + 8 i, row t.
template <bool kOneScale>
__device__ __forceinline__ void MultiplyBlock(const char* block, int scales_per_block,
                                              const BlockInput& x, float (&totals)[2]) {
  constexpr uint32_t kMask = 0x0f0f0f0fu;
  const int lane = threadIdx.x % 32, g = lane / 4;
  const auto* scale_words = reinterpret_cast<const uint32_t*>(block + kInt4ValueBytes) + g;
  const int steps_a_scale = Stage::kSteps / scales_per_block;
  const int32_t sums[Stage::kSteps] = {x.sums.x, x.sums.y, x.sums.z, x.sums.w};
  int32_t products[4] = {}, sum = 0;
#pragma unroll
  for (int s = 0; s < Stage::kSteps; ++s) {
    const uint2 words = reinterpret_cast<const uint2*>(block)[(s / 2 * 32 + lane) * 2 + s % 2];
    const uint4& in = x.words[s / 2];
    ByteMultiplyAdd(products, words.x & kMask, words.y & kMask, words.x >> 4 & kMask,
                    words.y >> 4 & kMask, s % 2 == 0 ? in.x : in.z, s % 2 == 0 ? in.y : in.w);
    sum += sums[s];
    if (kOneScale ? s + 1 < Stage::kSteps : ((s + 1) & (steps_a_scale - 1)) != 0) continue;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t word = scale_words[8 * i];
      const int32_t product =
          256 * products[2 * i] + products[2 * i + 1] - static_cast<int32_t>(word & 31u) * sum;
      totals[i] += static_cast<float>(product) * (__uint_as_float(word & ~31u) * x.scale);
      products[2 * i] = products[2 * i + 1] = 0;
    }
    sum = 0;
    scale_words += kInt4TileRows;
  }
}

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
        MultiplyBlock<kOneScale>(
            ring + stage * stage_bytes + warp * Int4BlockBytes(scales_per_block), scales_per_block,
            x, totals);
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
