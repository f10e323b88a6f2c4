// The weight-streaming GEMM on every GPU from compute capability 8.0. A tile is 16 outputs; the
// warps of a block share its depth, and several blocks share a multiprocessor. Weights go from
// global memory to registers as operand a of the mma: the order of the depth within a step is free
// as long as both operands agree, so that a thread reads 16 contiguous bytes. Blocks are
// persistent: a warp loads its next steps, also those of the block's next tile, before it
// multiplies the current one. The input is read through the caches. The factor of the norm, which
// depends on the whole row, is applied to the sums. Inputs of up to kByteRows
// rows are multiplied by int4 weights as bytes (stream_bytes.cuh), unless they are too long. Bound
// by memory bandwidth.
#include <algorithm>

#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/gemm/fp8_to_bf16.cuh"
#include "backends/gpu_llm/kernels/gemm/gemm.h"
#include "backends/gpu_llm/kernels/gemm/stream_bytes.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kTileOutputs = 16;
constexpr int kWarps = 8, kThreads = 32 * kWarps;

// A warp's weights of one step: operand a for kParts parts of 32 columns. In part s the thread has
// columns ColumnOf(s) to ColumnOf(s) + 7 of rows g and g + 8.
// kHasBlocks: fp8 weights have block scales.
template <WeightFormat kFormat, bool kHasBlocks = false>
struct Step;

template <>
struct Step<WeightFormat::kBf16> {
  static constexpr int kParts = 4, kColumns = 32 * kParts, kAhead = 1;
  uint4 low[kParts], high[kParts];

  // `columns`: that are left from the step's first one on.
  __device__ __forceinline__ void Load(const WeightMatrix& w, int tile, int first, int columns) {
    const int g = threadIdx.x % 32 / 4;
    const auto* row =
        static_cast<const bf16*>(w.data) + (int64_t{tile} * kTileOutputs + g) * w.depth + first;
#pragma unroll
    for (int s = 0; s < kParts; ++s) {
      const int column = ColumnOf(s);
      low[s] = high[s] = {};
      if (column >= columns) continue;
      low[s] = LoadStreaming(row + column);
      high[s] = LoadStreaming(row + 8 * int64_t{w.depth} + column);
    }
  }
  // Two quarters of a warp's 128 bytes of a row are read by the same thread.
  static __device__ __forceinline__ int ColumnOf(int s) {
    return s * 32 + threadIdx.x % 4 * 8;
  }
  template <int kTokenTiles>
  __device__ __forceinline__ void Multiply(const WeightMatrix&, const uint4 (&x)[kTokenTiles],
                                           int s, float (&sums)[kTokenTiles][4]) const {
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      MatrixMultiplyAdd(sums[n], low[s].x, high[s].x, low[s].y, high[s].y, x[n].x, x[n].y);
      MatrixMultiplyAdd(sums[n], low[s].z, high[s].z, low[s].w, high[s].w, x[n].z, x[n].w);
    }
  }
};

template <bool kHasBlocks>
struct Step<WeightFormat::kFp8, kHasBlocks> {
  static constexpr int kParts = 4, kColumns = kFp8BlockColumns, kAhead = 2;
  uint2 low[kParts], high[kParts];
  uint32_t scales = kFp8NoScales;  // of the step's block

  __device__ __forceinline__ void Load(const WeightMatrix& w, int tile, int first, int columns) {
    const int g = threadIdx.x % 32 / 4;
    const auto* row =
        static_cast<const char*>(w.data) + (int64_t{tile} * kTileOutputs + g) * w.depth + first;
    if (kHasBlocks && columns > 0) {
      scales = __ldg(w.block_scales + first / kFp8BlockColumns * NumFp8Tiles(w.num_outputs) + tile);
    }
#pragma unroll
    for (int s = 0; s < kParts; ++s) {
      const int column = ColumnOf(s);
      low[s] = high[s] = {};
      if (column >= columns) continue;
      low[s] = __ldcs(reinterpret_cast<const uint2*>(row + column));
      high[s] = __ldcs(reinterpret_cast<const uint2*>(row + 8 * int64_t{w.depth} + column));
    }
  }
  static __device__ __forceinline__ int ColumnOf(int s) {
    return s * 32 + threadIdx.x % 4 * 8;
  }
  template <int kTokenTiles>
  __device__ __forceinline__ void Multiply(const WeightMatrix&, const uint4 (&x)[kTokenTiles],
                                           int s, float (&sums)[kTokenTiles][4]) const {
    uint32_t a[4], b[4];
    uint32_t low_factor = kFp8Factor, high_factor = kFp8Factor;
    if constexpr (kHasBlocks)
      low_factor = Fp8FactorOf(scales, 0), high_factor = Fp8FactorOf(scales, 1);
    Fp8ToBf16(low[s].x, low_factor, a[0], a[1]);
    Fp8ToBf16(low[s].y, low_factor, a[2], a[3]);
    Fp8ToBf16(high[s].x, high_factor, b[0], b[1]);
    Fp8ToBf16(high[s].y, high_factor, b[2], b[3]);
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {  // the pairs that unpacking produces
      MatrixMultiplyAdd(sums[n], a[0], b[0], a[1], b[1], __byte_perm(x[n].x, x[n].y, 0x5410),
                        __byte_perm(x[n].x, x[n].y, 0x7632));
      MatrixMultiplyAdd(sums[n], a[2], b[2], a[3], b[3], __byte_perm(x[n].z, x[n].w, 0x5410),
                        __byte_perm(x[n].z, x[n].w, 0x7632));
    }
  }
};

template <>
struct Step<WeightFormat::kInt4> {
  static constexpr int kParts = 4, kColumns = kInt4BlockColumns, kAhead = 2;
  uint4 halves[2];
  uint32_t scales[2][kParts];  // of rows g and g + 8, for each part; with one a block, the first

  __device__ __forceinline__ void Load(const WeightMatrix& w, int tile, int first, int columns) {
    const int lane = threadIdx.x % 32, g = lane / 4;
    halves[0] = halves[1] = {};
#pragma unroll
    for (int s = 0; s < kParts; ++s) scales[0][s] = scales[1][s] = 0;
    if (columns <= 0) return;
    const char* block = static_cast<const char*>(w.data) +
                        tile * Int4TileBytes(w.depth, w.scales_per_block) +
                        first / kInt4BlockColumns * Int4BlockBytes(w.scales_per_block);
    halves[0] = LoadStreaming(block + lane * 16);
    halves[1] = LoadStreaming(block + 512 + lane * 16);
    const auto* words = reinterpret_cast<const uint32_t*>(block + kInt4ValueBytes) + g;
#pragma unroll
    for (int s = 0; s < kParts; ++s) {
      if (s > 0 && w.scales_per_block == 1) break;
      const int row = s * w.scales_per_block / kParts * kInt4TileRows;
      scales[0][s] = __ldg(words + row), scales[1][s] = __ldg(words + row + 8);
    }
  }
  static __device__ __forceinline__ int ColumnOf(int s) {
    return s * 32 + threadIdx.x % 4 * 8;
  }
  template <int kTokenTiles>
  __device__ __forceinline__ void Multiply(const WeightMatrix& w, const uint4 (&x)[kTokenTiles],
                                           int s, float (&sums)[kTokenTiles][4]) const {
    uint32_t low[4], high[4];
    const uint4& half = halves[s / 2];
    const bool is_one = w.scales_per_block == 1;
    const uint32_t low_scale = is_one ? scales[0][0] : scales[0][s];
    const uint32_t high_scale = is_one ? scales[1][0] : scales[1][s];
    Unpack(s % 2 == 0 ? half.x : half.z, low_scale, low);
    Unpack(s % 2 == 0 ? half.y : half.w, high_scale, high);
    const float factors[2] = {__uint_as_float(low_scale & ~31u),
                              __uint_as_float(high_scale & ~31u)};
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      float part[4] = {};
      MatrixMultiplyAdd(part, low[0], high[0], low[1], high[1], x[n].x, x[n].y);
      MatrixMultiplyAdd(part, low[2], high[2], low[3], high[3], x[n].z, x[n].w);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] += part[i] * factors[i / 2];
    }
  }
  // Eight values minus their zero, in adjacent pairs: 128 + v is a bf16 whose last bits are v.
  static __device__ __forceinline__ void Unpack(uint32_t word, uint32_t scale,
                                                uint32_t (&pairs)[4]) {
    const uint32_t zero = 0x43004300u + (scale & 31u) * 0x10001u;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t biased = (word >> (4 * i) & 0x000f000fu) | 0x43004300u;
      const __nv_bfloat162 pair = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&biased),
                                          *reinterpret_cast<const __nv_bfloat162*>(&zero));
      pairs[i] = *reinterpret_cast<const uint32_t*>(&pair);
    }
  }
};

// low and high: outputs first + g and first + g + 8 of one token.
__device__ __forceinline__ void Store(const StreamGemmParams& p, int first, int g, int64_t token,
                                      float low, float high) {
  const int64_t num_outputs = p.weights.num_outputs;
  if (p.output == GemmEpilogue::kSiluGate) {
    auto* out = static_cast<bf16*>(p.out) + token * (num_outputs / 2) + first / 2 + g;
    *out = __float2bfloat16(low / (1.0f + __expf(-low)) * high);
  } else if (p.output == GemmEpilogue::kFloat) {
    float* out = static_cast<float*>(p.out) + token * num_outputs + first + g;
    out[0] = low, out[8] = high;
  } else {
    auto* out = static_cast<bf16*>(p.out) + token * num_outputs + first + g;
    if (p.output == GemmEpilogue::kAdd)
      low += __bfloat162float(out[0]), high += __bfloat162float(out[8]);
    out[0] = __float2bfloat16(low), out[8] = __float2bfloat16(high);
  }
}

// Multiplies eight values of the input by the norm's weights; returns the sum of their squares.
__device__ __forceinline__ float ApplyNorm(uint4& x, const bf16* weight) {
  float values[8], weights[8], squares = 0.0f;
  Unpack8(x, values);
  Unpack8(__ldg(reinterpret_cast<const uint4*>(weight)), weights);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    squares += values[i] * values[i];
    values[i] *= weights[i];
  }
  x = Pack8(values);
  return squares;
}

constexpr int BlocksOfProcessor(int token_tiles) {
  return token_tiles == 1 ? 3 : 2;
}

template <WeightFormat kFormat, bool kHasBlocks, int kTokenTiles, bool kNorms>
__global__ void __launch_bounds__(kThreads, BlocksOfProcessor(kTokenTiles))
    StreamGemmKernel(const __grid_constant__ StreamGemmParams p) {
  using WeightStep = Step<kFormat, kHasBlocks>;
  constexpr int kStride = WeightStep::kColumns * kWarps, kAhead = WeightStep::kAhead;
  __shared__ float4 parts[2][kWarps][kTokenTiles][32];
  __shared__ float squares[2][kWarps][8 * kTokenTiles];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
  const int depth = p.weights.depth, num_tiles = p.weights.num_outputs / kTileOutputs;
  const int warp_first = warp * WeightStep::kColumns;
  LaunchNext();
  // What is loaded next: the warp's steps of a tile, then of the block's next tile.
  int load_tile = static_cast<int>(blockIdx.x), load_first = warp_first;
  const auto load = [&](WeightStep& step) {
    step.Load(p.weights, load_tile, load_first, load_tile < num_tiles ? depth - load_first : 0);
    load_first += kStride;
    if (load_first >= depth) load_tile += static_cast<int>(gridDim.x), load_first = warp_first;
  };
  WeightStep steps[kAhead + 1];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(steps[i]);
  WaitForPrevious();
  const bf16* input[kTokenTiles];
#pragma unroll
  for (int n = 0; n < kTokenTiles; ++n) {
    const int row = g + 8 * n;
    input[n] = row < p.num_rows ? p.in + (p.rows != nullptr ? p.rows[row] : row) * int64_t{depth}
                                : nullptr;
  }
  int buffer = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < num_tiles;
       tile += static_cast<int>(gridDim.x), buffer ^= 1) {
    float sums[kTokenTiles][4] = {}, square_sums[kTokenTiles] = {};
    for (int first = warp_first; first < depth; first += kStride) {
      load(steps[kAhead]);
#pragma unroll
      for (int s = 0; s < WeightStep::kParts; ++s) {
        const int column = first + WeightStep::ColumnOf(s);
        uint4 x[kTokenTiles];
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n) {
          x[n] = {};
          if (input[n] == nullptr || column >= depth) continue;
          x[n] = *reinterpret_cast<const uint4*>(input[n] + column);
          if constexpr (kNorms) square_sums[n] += ApplyNorm(x[n], p.norm_weight + column);
        }
        steps[0].Multiply(p.weights, x, s, sums);
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) steps[i] = steps[i + 1];
    }
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      parts[buffer][warp][n][lane] = {sums[n][0], sums[n][1], sums[n][2], sums[n][3]};
      if constexpr (kNorms) {  // the four threads of a token have different columns
        float sum = square_sums[n];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane % 4 == 0) squares[buffer][warp][g + 8 * n] = sum;
      }
    }
    __syncthreads();
    // This thread stores the sums of lane `from` for its token b. The next tile's sums go to the
    // other buffer.
    const int from = threadIdx.x % 64 / 2, b = threadIdx.x % 2, token_tile = threadIdx.x / 64;
    const int token = token_tile * 8 + from % 4 * 2 + b;
    if (token_tile >= kTokenTiles || token >= p.num_rows) continue;
    float low = 0.0f, high = 0.0f, square = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float* part = reinterpret_cast<const float*>(&parts[buffer][w][token_tile][from]);
      low += part[b], high += part[2 + b];
      if constexpr (kNorms) square += squares[buffer][w][token];
    }
    if constexpr (kNorms) {
      const float factor = rsqrtf(square / static_cast<float>(depth) + p.epsilon);
      low *= factor, high *= factor;
    }
    if constexpr (kFormat == WeightFormat::kFp8) {
      const int output = tile * kTileOutputs + from / 4;
      low *= p.weights.row_scales[output], high *= p.weights.row_scales[output + 8];
    }
    Store(p, tile * kTileOutputs, from / 4, token, low, high);
  }
}

template <WeightFormat kFormat, bool kHasBlocks = false>
void LaunchFormat(const StreamGemmParams& p, int num_processors, cudaStream_t stream) {
  const int num_blocks = std::min(p.weights.num_outputs / kTileOutputs,
                                  num_processors * BlocksOfProcessor(p.num_rows <= 8 ? 1 : 2));
  const auto launch = [&](auto kernel) { Launch(kernel, num_blocks, kThreads, 0, stream, p); };
  const bool norms = p.norm_weight != nullptr;
  if (p.num_rows <= 8) {
    norms ? launch(StreamGemmKernel<kFormat, kHasBlocks, 1, true>)
          : launch(StreamGemmKernel<kFormat, kHasBlocks, 1, false>);
  } else {
    norms ? launch(StreamGemmKernel<kFormat, kHasBlocks, 2, true>)
          : launch(StreamGemmKernel<kFormat, kHasBlocks, 2, false>);
  }
}

template <bool kOneScale>
__global__ void __launch_bounds__(kThreads, BlocksOfProcessor(1))
    StreamBytesKernel(const __grid_constant__ StreamGemmParams p, int warps_a_row) {
  using namespace stream_bytes;
  constexpr int kAhead = 2;  // blocks of weights
  extern __shared__ __align__(16) char memory[];
  __shared__ float2 parts[2][kWarps][32];
  __shared__ float squares[stream_gemm_shape::kByteRows][kWarps];
  const WeightMatrix& w = p.weights;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int num_tiles = w.num_outputs / kTileOutputs, grid = static_cast<int>(gridDim.x);
  const int num_blocks = NumInt4Blocks(w.depth);
  LaunchNext();
  // The block of weights that this warp loads next. It has every kWarps-th block of a tile, and
  // then of the next tile of this block of threads.
  int load_tile = static_cast<int>(blockIdx.x), load_block = warp;
  const auto load = [&](WeightBlock<kOneScale>& block) {
    block = {};
    if (load_tile < num_tiles && load_block < num_blocks) {
      block.Load(
          static_cast<const char*>(w.data) +
              load_tile * Int4TileBytes(w.depth, w.scales_per_block) +
              load_block * Int4BlockBytes(w.scales_per_block),
          w.scales_per_block, [](const uint4* from) { return LoadStreaming(from); },
          [](const uint32_t* from) { return __ldg(from); });
    }
    load_block += kWarps;
    if (load_block >= num_blocks) load_tile += grid, load_block = warp;
  };
  WeightBlock<kOneScale> blocks[kAhead + 1];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(blocks[i]);
  WaitForPrevious();
  const ByteInput input(memory, w.depth, p.num_rows);
  FillBytes<kWarps>(p, warps_a_row, input, squares);
  __syncthreads();
  float factor = 1.0f;
  if (t < p.num_rows && p.norm_weight != nullptr) {
    float sum = 0.0f;
    for (int i = 0; i < warps_a_row; ++i) sum += squares[t][i];
    factor = rsqrtf(sum / static_cast<float>(w.depth) + p.epsilon);
  }
  int turn = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < num_tiles; tile += grid, ++turn) {
    float totals[2] = {};
    for (int first = warp; first < num_blocks; first += kWarps) {
      load(blocks[kAhead]);
      BlockInput x;
      x.Load(input, first);
      MultiplyBlock(blocks[0], x, totals);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) blocks[i] = blocks[i + 1];
    }
    parts[turn % 2][warp][lane] = {totals[0], totals[1]};
    __syncthreads();
    // The warps take turns at adding up all warps' sums of a tile. Those of the next tile are
    // written to the other buffer, so that the others need not wait for this warp.
    if (turn % kWarps != warp || t >= p.num_rows) continue;
    float low = 0.0f, high = 0.0f;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      const float2 part = parts[turn % 2][i][lane];
      low += part.x, high += part.y;
    }
    Store(p, tile * kTileOutputs, g, t, low * factor, high * factor);
  }
}

// Returns how many blocks of threads a multiprocessor with 100 KB of shared memory has room for if
// each of them keeps `input_bytes` of input there. 0: the input is too long for the 48 KB that
// every launch may have.
int BytesBlocksOfProcessor(int input_bytes) {
  constexpr int kFixedBytes = 6 * 1024;  // sums, and what the driver reserves
  if (input_bytes + kFixedBytes > 48 * 1024) return 0;
  return std::min(BlocksOfProcessor(1), 100 * 1024 / (input_bytes + kFixedBytes));
}

void LaunchInt4(const StreamGemmParams& p, int num_processors, cudaStream_t stream) {
  const int bytes = stream_gemm_shape::ByteInputBytes(p.weights.depth, p.num_rows);
  const int blocks = p.num_rows <= stream_gemm_shape::kByteRows ? BytesBlocksOfProcessor(bytes) : 0;
  if (blocks == 0) return LaunchFormat<WeightFormat::kInt4>(p, num_processors, stream);
  const int warps_a_row = p.num_rows == 1 ? kWarps : p.num_rows == 2 ? kWarps / 2 : kWarps / 4;
  const auto launch = [&](auto kernel) {
    Launch(kernel, std::min(p.weights.num_outputs / kTileOutputs, num_processors * blocks),
           kThreads, bytes, stream, p, warps_a_row);
  };
  p.weights.scales_per_block == 1 ? launch(StreamBytesKernel<true>)
                                  : launch(StreamBytesKernel<false>);
}

}  // namespace

void StreamGemm(const StreamGemmParams& params, int num_processors, cudaStream_t stream) {
  switch (params.weights.format) {
    case WeightFormat::kBf16:
      return LaunchFormat<WeightFormat::kBf16>(params, num_processors, stream);
    case WeightFormat::kFp8:
      return params.weights.block_scales != nullptr
                 ? LaunchFormat<WeightFormat::kFp8, true>(params, num_processors, stream)
                 : LaunchFormat<WeightFormat::kFp8>(params, num_processors, stream);
    case WeightFormat::kInt4:
      return LaunchInt4(params, num_processors, stream);
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
