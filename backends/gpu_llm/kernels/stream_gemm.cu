// A tile is 16 outputs; the eight warps of a block share out the depth, and a block takes every
// n-th tile. Weights are operand a of the matrix product and go from memory straight into its
// registers, kAhead steps of 32 along the depth ahead, across tiles too. The order of the depth
// within a step is free as long as both operands agree: each thread has 8 values that lie together.
#include "gpu_llm/kernels/device.cuh"
#include "gpu_llm/kernels/launch.h"
#include "gpu_llm/kernels/stream_gemm.h"

namespace nereid::gpu {
namespace {

constexpr int kWarps = 8;
constexpr int kTileOutputs = 16;
constexpr int kAhead = 8;
constexpr int kBlocksPerProcessor = 2;
constexpr int kMaxSharedBytes = 100 * 1024;  // of the input

// Of a row of the input in shared memory: 64 bytes off, so that two neighbours share no banks.
__host__ __device__ constexpr int RowBytes(int depth) {
  return depth * 2 + 64;
}

// The rows into shared memory, normed if so asked: one warp a row, or all warps for a single one.
__device__ void FillInput(const StreamGemmParams& p, char* shared) {
  __shared__ float sums[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warps_a_row = p.num_rows == 1 ? kWarps : 1;
  const int row = warp / warps_a_row, stride = 32 * warps_a_row;
  const int first = warp % warps_a_row * 32 + lane, chunks = p.depth / 8;
  uint4* to = reinterpret_cast<uint4*>(shared + row * RowBytes(p.depth));
  float sum = 0.0f;
  if (row < p.num_rows) {
    const int64_t from_row = p.rows != nullptr ? p.rows[row] : row;
    const uint4* from = reinterpret_cast<const uint4*>(p.in + from_row * p.depth);
#pragma unroll 4
    for (int i = first; i < chunks; i += stride) {
      const uint4 packed = from[i];
      to[i] = packed;
      float values[8];
      Unpack8(packed, values);
#pragma unroll
      for (const float value : values) sum += value * value;
    }
  }
  if (p.norm_weight == nullptr) return;
  sum = WarpSum(sum);
  if (lane == 0) sums[warp] = sum;
  __syncthreads();
  if (row >= p.num_rows) return;
  sum = 0.0f;
  for (int i = 0; i < warps_a_row; ++i) sum += sums[row * warps_a_row + i];
  const float scale = rsqrtf(sum / static_cast<float>(p.depth) + p.epsilon);
  const uint4* weight = reinterpret_cast<const uint4*>(p.norm_weight);
#pragma unroll 4
  for (int i = first; i < chunks; i += stride) {
    float values[8], weights[8];
    Unpack8(to[i], values);
    Unpack8(weight[i], weights);
#pragma unroll
    for (int j = 0; j < 8; ++j) values[j] *= scale * weights[j];
    to[i] = Pack8(values);
  }
}

// low and high: of outputs first + g and first + g + 8, for one token.
__device__ __forceinline__ void Store(const StreamGemmParams& p, int first, int g, int64_t token,
                                      float low, float high) {
  if (p.output == StreamOutput::kSiluGate) {
    auto* out = static_cast<bf16*>(p.out) + token * (p.num_outputs / 2) + first / 2 + g;
    *out = __float2bfloat16(low / (1.0f + __expf(-low)) * high);
  } else if (p.output == StreamOutput::kFloat) {
    float* out = static_cast<float*>(p.out) + token * p.num_outputs + first + g;
    out[0] = low, out[8] = high;
  } else {
    auto* out = static_cast<bf16*>(p.out) + token * p.num_outputs + first + g;
    const bool adds = p.output == StreamOutput::kAdd;
    out[0] = __float2bfloat16(low + (adds ? __bfloat162float(out[0]) : 0.0f));
    out[8] = __float2bfloat16(high + (adds ? __bfloat162float(out[8]) : 0.0f));
  }
}

template <bool kInShared>  // the input
__global__ void __launch_bounds__(32 * kWarps, kBlocksPerProcessor)
    StreamGemmKernel(StreamGemmParams p) {
  extern __shared__ __align__(16) char shared[];
  __shared__ float4 parts[2][kWarps][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int steps = p.depth / (32 * kWarps);  // of a warp and tile
  const int num_tiles = p.num_outputs / kTileOutputs;
  const int depth_first = warp * steps * 32 + 8 * t;
  LaunchNext();
  uint4 ring[kAhead][2];
  const auto load = [&](uint4(&to)[2], int tile, int step) {
    if (tile >= num_tiles || step >= steps) {
      to[0] = to[1] = {};
      return;
    }
    const bf16* from =
        p.weights + int64_t{tile * kTileOutputs + g} * p.depth + depth_first + 32 * step;
    to[0] = LoadStreaming(from);
    to[1] = LoadStreaming(from + int64_t{8} * p.depth);
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(ring[i], blockIdx.x, i);
  WaitForPrevious();
  if constexpr (kInShared) {
    FillInput(p, shared);
    __syncthreads();
  }
  const char* input = shared + g * RowBytes(p.depth);
  if constexpr (!kInShared) {
    const int64_t row = g >= p.num_rows ? 0 : p.rows != nullptr ? p.rows[g] : g;
    input = reinterpret_cast<const char*>(p.in + row * p.depth);
  }
  int turn = 0;
  for (int tile = blockIdx.x; tile < num_tiles; tile += gridDim.x, turn ^= 1) {
    float sums[4] = {};
    for (int first_step = 0; first_step < steps; first_step += kAhead) {
      const bool is_last = first_step + kAhead >= steps;
      const int next_tile = is_last ? tile + gridDim.x : tile,
                next_step = is_last ? 0 : first_step + kAhead;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        uint4 x = {};
        if (g < p.num_rows && first_step + i < steps) {
          x = *reinterpret_cast<const uint4*>(input + (depth_first + 32 * (first_step + i)) * 2);
        }
        const uint4 low = ring[i][0], high = ring[i][1];
        MatrixMultiplyAdd(sums, low.x, high.x, low.y, high.y, x.x, x.y);
        MatrixMultiplyAdd(sums, low.z, high.z, low.w, high.w, x.z, x.w);
        load(ring[i], next_tile, next_step + i);
      }
    }
    parts[turn][warp][lane] = {sums[0], sums[1], sums[2], sums[3]};
    __syncthreads();
    if (threadIdx.x < 64) {
      const int from = threadIdx.x / 2, b = threadIdx.x % 2;
      const int64_t token = from % 4 * 2 + b;
      float low_sum = 0.0f, high_sum = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float* part = reinterpret_cast<const float*>(&parts[turn][w][from]);
        low_sum += part[b];
        high_sum += part[2 + b];
      }
      if (token < p.num_rows) Store(p, tile * kTileOutputs, from / 4, token, low_sum, high_sum);
    }
  }
}

}  // namespace

bool CanStream(int num_rows, int num_outputs, int depth, bool norms) {
  return num_rows <= kStreamMaxRows && num_outputs % kTileOutputs == 0 &&
         depth % (32 * kWarps) == 0 && (!norms || num_rows * RowBytes(depth) <= 200 * 1024);
}

void StreamGemm(const StreamGemmParams& params, int num_processors, cudaStream_t stream) {
  const int tiles = params.num_outputs / kTileOutputs;
  const int blocks =
      tiles < kBlocksPerProcessor * num_processors ? tiles : kBlocksPerProcessor * num_processors;
  const int shared = params.num_rows * RowBytes(params.depth);
  if (shared <= kMaxSharedBytes || params.norm_weight != nullptr) {
    (void)cudaFuncSetAttribute(StreamGemmKernel<true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               shared);
    Launch(StreamGemmKernel<true>, blocks, 32 * kWarps, shared, stream, params);
  } else {
    Launch(StreamGemmKernel<false>, blocks, 32 * kWarps, 0, stream, params);
  }
}

}  // namespace nereid::gpu
