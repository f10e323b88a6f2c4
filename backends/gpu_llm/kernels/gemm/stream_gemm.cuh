// The weight-streaming GEMM kernel for one weight format; each format is compiled in its own file.
//
// A tile is 16 outputs. A block of threads occupies a multiprocessor alone and handles every n-th
// tile. Producer warps keep a ring of stages in shared memory filled with weights, starting before
// the previous kernel has ended. The consumer warps share the depth of a stage and add their
// partial sums when a tile ends. Weights are operand a of the mma. The order of the depth within a
// step of 32 is free as long as both operands agree, so a thread has 8 contiguous values of a row.
// The factor of the norm, which depends on the whole row, is applied to the sums.
//
// Bound by memory bandwidth. Share of an H200's 4.65 TB/s, consecutive launches with 1 row: bf16 70
// to 83 % (bench/results/gpu_llm.csv), int4 38 to 66 % (gpu_few_rows.csv).
#pragma once

#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/gemm/fp8_to_bf16.cuh"
#include "backends/gpu_llm/kernels/gemm/gemm.h"
#include "backends/gpu_llm/kernels/rows/activate.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace stream_gemm {

using namespace stream_gemm_shape;

// Barrier of the consumer warps only.
template <int kWarps>
__device__ __forceinline__ void SyncConsumers() {
  asm volatile("bar.sync 1, %0;" ::"n"(32 * kWarps) : "memory");
}

// Fills the ring with the stages of this block's tiles, in order. Rows are copied in 16 bytes a
// lane, because the bulk copy engine needs about 80 cycles for a copy of any size.
template <WeightFormat kFormat>
__device__ void Produce(const StreamGemmParams& p, int num_stages, char* ring, uint64_t* full,
                        uint64_t* empty) {
  using Stage = StageShape<kFormat>;
  const WeightMatrix& w = p.weights;
  const int producer = threadIdx.x / 32 - Stage::kWarps, lane = threadIdx.x % 32;
  const int stage_bytes = Stage::Bytes(w.scales_per_block);
  const int num_tiles = w.num_outputs / kTileOutputs;
  int stage = 0, turn = 0;
  for (int tile = blockIdx.x; tile < num_tiles; tile += gridDim.x) {
    for (int first = 0; first < w.depth; first += Stage::kColumns) {
      if (turn > 0) BarrierWait(empty + stage, (turn - 1) & 1);
      char* to = ring + stage * stage_bytes;
      const int columns = min(Stage::kColumns, w.depth - first);
      if constexpr (kFormat == WeightFormat::kInt4) {
        const int block_bytes = Int4BlockBytes(w.scales_per_block);
        const int bytes = NumInt4Blocks(columns) * block_bytes;
        if (lane == 0) {
          BarrierExpect(full + stage, bytes);
          BulkCopy(to,
                   static_cast<const char*>(w.data) +
                       tile * Int4TileBytes(w.depth, w.scales_per_block) +
                       first / kInt4BlockColumns * block_bytes,
                   bytes, full + stage);
        }
      } else {
        constexpr int kRows = kTileOutputs / Stage::kProducers;
        const int64_t row_bytes = int64_t{w.depth} * Stage::kElementBytes;
        const int first_row = producer * kRows;
        const char* from = static_cast<const char*>(w.data) +
                           (tile * kTileOutputs + first_row) * row_bytes +
                           first * Stage::kElementBytes + lane * 16;
        to += first_row * Stage::kPitch + lane * 16;
        if (lane * 16 < columns * Stage::kElementBytes) {
#pragma unroll
          for (int row = 0; row < kRows; ++row)
            AsyncCopy16(to + row * Stage::kPitch, from + row * row_bytes);
        }
        AsyncCopyArrive(full + stage);
      }
      if (++stage == num_stages) stage = 0, ++turn;
    }
  }
  // A thread that exits with copies in flight would leave them incomplete.
  if constexpr (kFormat != WeightFormat::kInt4) AsyncCopyWaitAll();
}

// Copies the input rows to shared memory by bulk copies; all consumers wait for them.
__device__ __forceinline__ void CopyInput(const StreamGemmParams& p, char* shared,
                                          uint64_t* copied) {
  const int depth = p.weights.depth;
  if (threadIdx.x == 0) {
    BarrierExpect(copied, p.num_rows * depth * 2);
    for (int row = 0; row < p.num_rows; ++row) {
      const int64_t from_row = p.rows != nullptr ? p.rows[row] : row;
      BulkCopy(shared + row * InputRowBytes(depth), p.in + from_row * depth, depth * 2, copied);
    }
  }
  BarrierWait(copied, 0);
}

// Loads the input rows to shared memory, multiplied by the norm's weights. `squares` gets the sum
// of squares of each row, in one part for each of the row's warps.
template <int kWarps>
__device__ void FillInput(const StreamGemmParams& p, int warps_a_row, char* shared,
                          float (*squares)[kWarps]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, depth = p.weights.depth;
  const uint4* weight = reinterpret_cast<const uint4*>(p.norm_weight);
  for (int row = warp / warps_a_row; row < p.num_rows; row += kWarps / warps_a_row) {
    const int64_t from_row = p.rows != nullptr ? p.rows[row] : row;
    const uint4* from = reinterpret_cast<const uint4*>(p.in + from_row * depth);
    uint4* to = reinterpret_cast<uint4*>(shared + row * InputRowBytes(depth));
    float sum = 0.0f;
#pragma unroll 4
    for (int i = warp % warps_a_row * 32 + lane; i < depth / 8; i += 32 * warps_a_row) {
      float values[8], weights[8];
      Unpack8(from[i], values);
      Unpack8(weight[i], weights);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        sum += values[j] * values[j];
        values[j] *= weights[j];
      }
      to[i] = Pack8(values);
    }
    sum = WarpSum(sum);
    if (lane == 0) squares[row][warp % warps_a_row] = sum;
  }
}

// Eight values minus their zero, in adjacent pairs: 128 + v is a bf16 whose last bits are v.
__device__ __forceinline__ void Int4ToBf16(uint32_t word, uint32_t zero, uint32_t mask,
                                           uint32_t bias, uint32_t (&pairs)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t biased;  // (word >> 4 i & mask) | 128 twice: one instruction if both are in registers
    asm("lop3.b32 %0, %1, %2, %3, 0xea;"
        : "=r"(biased)
        : "r"(word >> (4 * i)), "r"(mask), "r"(bias));
    const __nv_bfloat162 pair = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&biased),
                                        *reinterpret_cast<const __nv_bfloat162*>(&zero));
    pairs[i] = *reinterpret_cast<const uint32_t*>(&pair);
  }
}

// A warp's part of a stage: sums += weights x input.
template <WeightFormat kFormat, int kTokenTiles, bool kOneScale>
__device__ __forceinline__ void Consume(const char* stage, int columns, int scales_per_block,
                                        const uint4 (&x)[StageShape<kFormat>::kSteps][kTokenTiles],
                                        float (&sums)[kTokenTiles][4]) {
  using Stage = StageShape<kFormat>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  if constexpr (kFormat == WeightFormat::kInt4) {
    if (warp * kInt4BlockColumns >= columns) return;
    const char* block = stage + warp * Int4BlockBytes(scales_per_block);
    const uint4 halves[2] = {reinterpret_cast<const uint4*>(block)[lane],
                             reinterpret_cast<const uint4*>(block)[32 + lane]};
    const auto* scale_words = reinterpret_cast<const uint32_t*>(block + kInt4ValueBytes) + g;
    const int steps_a_scale = Stage::kSteps / scales_per_block;
    uint32_t low_scale = scale_words[0], high_scale = scale_words[8];
    // In registers, because an instruction has only one immediate.
    uint32_t mask, bias;
    asm("mov.b32 %0, 0x000f000f;" : "=r"(mask));
    asm("mov.b32 %0, 0x43004300;" : "=r"(bias));
    float group[kTokenTiles][4] = {}, other[kTokenTiles][4] = {};  // two independent chains of mma
#pragma unroll
    for (int s = 0; s < Stage::kSteps; ++s) {
      const uint4& half = halves[s / 2];
      const uint32_t low_zero = bias + (low_scale & 31u) * 0x10001u,
                     high_zero = bias + (high_scale & 31u) * 0x10001u;
      uint32_t low[4], high[4];
      Int4ToBf16(s % 2 == 0 ? half.x : half.z, low_zero, mask, bias, low);
      Int4ToBf16(s % 2 == 0 ? half.y : half.w, high_zero, mask, bias, high);
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        MatrixMultiplyAdd(group[n], low[0], high[0], low[1], high[1], x[s][n].x, x[s][n].y);
        MatrixMultiplyAdd(other[n], low[2], high[2], low[3], high[3], x[s][n].z, x[s][n].w);
      }
      if (kOneScale ? s + 1 < Stage::kSteps : ((s + 1) & (steps_a_scale - 1)) != 0) continue;
      const float low_factor = __uint_as_float(low_scale & ~31u),
                  high_factor = __uint_as_float(high_scale & ~31u);
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[n][i] += (group[n][i] + other[n][i]) * (i < 2 ? low_factor : high_factor);
          group[n][i] = other[n][i] = 0.0f;
        }
      }
      if (s + 1 < Stage::kSteps) {
        scale_words += kInt4TileRows;
        low_scale = scale_words[0], high_scale = scale_words[8];
      }
    }
  } else {
#pragma unroll
    for (int s = 0; s < Stage::kSteps; ++s) {
      const int column = s * Stage::kStepStride + warp * Stage::kWarpStride;
      if (column >= columns) break;
      const char* row = stage + g * Stage::kPitch + (column + 8 * t) * Stage::kElementBytes;
      uint32_t low[4], high[4];
      if constexpr (kFormat == WeightFormat::kBf16) {
        *reinterpret_cast<uint4*>(low) = *reinterpret_cast<const uint4*>(row);
        *reinterpret_cast<uint4*>(high) = *reinterpret_cast<const uint4*>(row + 8 * Stage::kPitch);
      } else {
        const uint2 packed_low = *reinterpret_cast<const uint2*>(row);
        const uint2 packed_high = *reinterpret_cast<const uint2*>(row + 8 * Stage::kPitch);
        Fp8ToBf16(packed_low.x, kFp8Factor, low[0], low[1]);
        Fp8ToBf16(packed_low.y, kFp8Factor, low[2], low[3]);
        Fp8ToBf16(packed_high.x, kFp8Factor, high[0], high[1]);
        Fp8ToBf16(packed_high.y, kFp8Factor, high[2], high[3]);
      }
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        uint4 in = x[s][n];
        if constexpr (kFormat == WeightFormat::kFp8) {  // matches the pairs that unpacking produces
          in = {__byte_perm(in.x, in.y, 0x5410), __byte_perm(in.x, in.y, 0x7632),
                __byte_perm(in.z, in.w, 0x5410), __byte_perm(in.z, in.w, 0x7632)};
        }
        MatrixMultiplyAdd(sums[n], low[0], high[0], low[1], high[1], in.x, in.y);
        MatrixMultiplyAdd(sums[n], low[2], high[2], low[3], high[3], in.z, in.w);
      }
    }
  }
}

// What is added to outputs `output` and `output` + 8 of a token.
__device__ __forceinline__ void LoadAdded(const StreamGemmParams& p, int output, int64_t token,
                                          float (&added)[2]) {
  added[0] = added[1] = 0.0f;
  if (p.bias != nullptr)
    added[0] = __bfloat162float(p.bias[output]), added[1] = __bfloat162float(p.bias[output + 8]);
  if (p.output == GemmEpilogue::kAdd) {
    const bf16* out = static_cast<const bf16*>(p.out) + token * p.weights.num_outputs;
    added[0] += __bfloat162float(out[output]), added[1] += __bfloat162float(out[output + 8]);
  }
}

// low and high: outputs first + g and first + g + 8 of one token; `added`: their biases, and old
// values for kAdd.
__device__ __forceinline__ void Store(const StreamGemmParams& p, int first, int g, int64_t token,
                                      float low, float high, const float (&added)[2],
                                      const RuntimeActivation& activation) {
  const int64_t num_outputs = p.weights.num_outputs;
  low += added[0], high += added[1];
  if (p.output == GemmEpilogue::kSiluGate || p.output == GemmEpilogue::kGate) {
    auto* out = static_cast<bf16*>(p.out) + token * (num_outputs / 2) + first / 2 + g;
    const float gate =
        p.output == GemmEpilogue::kGate ? activation(low) : low / (1.0f + __expf(-low));
    *out = __float2bfloat16(gate * high);
  } else if (p.output == GemmEpilogue::kFloat) {
    float* out = static_cast<float*>(p.out) + token * num_outputs + first + g;
    out[0] = low, out[8] = high;
  } else {
    auto* out = static_cast<bf16*>(p.out) + token * num_outputs + first + g;
    if (p.output == GemmEpilogue::kActivate) low = activation(low), high = activation(high);
    out[0] = __float2bfloat16(low);
    out[8] = __float2bfloat16(high);
  }
}

template <WeightFormat kFormat, int kTokenTiles,
          bool kInShared>  // whether the input is in shared memory
__global__ void __launch_bounds__(32 * (StageShape<kFormat>::kWarps +
                                        StageShape<kFormat>::kProducers),
                                  1)
    StreamGemmKernel(StreamGemmParams p, int num_stages, int warps_a_row) {
  using Stage = StageShape<kFormat>;
  constexpr int kWarps = Stage::kWarps;
  // Number of stages by which an input outside shared memory is read ahead.
  constexpr int kAhead = Stage::kSteps <= 2 ? 3 : kTokenTiles == 1 ? 1 : 0;
  constexpr bool kReadsAhead = !kInShared && kAhead > 0;
  extern __shared__ __align__(128) char ring[];
  __shared__ uint64_t full[kMaxStages], empty[kMaxStages], copied;
  __shared__ float4 parts[2][kWarps][kTokenTiles][32];
  __shared__ float squares[8 * kTokenTiles][kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int depth = p.weights.depth, stage_bytes = Stage::Bytes(p.weights.scales_per_block);
  LaunchNext();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < num_stages; ++stage) {
      BarrierInit(full + stage, kFormat == WeightFormat::kInt4 ? 1 : 32 * Stage::kProducers);
      BarrierInit(empty + stage, kWarps);
    }
    BarrierInit(&copied, 1);
    BarrierInitFence();
  }
  __syncthreads();
  if (warp >= kWarps) return Produce<kFormat>(p, num_stages, ring, full, empty);
  WaitForPrevious();
  char* shared_input = ring + num_stages * stage_bytes;
  if constexpr (kInShared) {
    if (p.norm_weight != nullptr) {
      FillInput<kWarps>(p, warps_a_row, shared_input, squares);
      SyncConsumers<kWarps>();
    } else {
      CopyInput(p, shared_input, &copied);
    }
  }
  const char* input[kTokenTiles];
#pragma unroll
  for (int n = 0; n < kTokenTiles; ++n) {
    const int row = g + 8 * n < p.num_rows ? g + 8 * n : 0;
    input[n] = kInShared ? shared_input + row * InputRowBytes(depth)
                         : reinterpret_cast<const char*>(
                               p.in + (p.rows != nullptr ? p.rows[row] : row) * int64_t{depth});
  }
  const auto load = [&](uint4(&x)[Stage::kSteps][kTokenTiles], int first) {
#pragma unroll
    for (int s = 0; s < Stage::kSteps; ++s) {
      const int column = first + s * Stage::kStepStride + warp * Stage::kWarpStride + 8 * t;
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        x[s][n] = {};
        if (g + 8 * n < p.num_rows && column < depth)
          x[s][n] = *reinterpret_cast<const uint4*>(input[n] + column * 2);
      }
    }
  };
  // This thread stores, of a tile, the sums of lane `from` for its token b.
  const int from = threadIdx.x % 64 / 2, b = threadIdx.x % 2, token_tile = threadIdx.x / 64;
  const int token = token_tile * 8 + from % 4 * 2 + b;
  const bool stores = token_tile < kTokenTiles && token < p.num_rows;
  float factor = 1.0f;
  if (stores && p.norm_weight != nullptr) {
    float sum = 0.0f;
    for (int i = 0; i < warps_a_row; ++i) sum += squares[token][i];
    factor = rsqrtf(sum / static_cast<float>(depth) + p.epsilon);
  }

  const int num_tiles = p.weights.num_outputs / kTileOutputs;
  const int padded = (depth + Stage::kColumns - 1) / Stage::kColumns * Stage::kColumns;
  int stage = 0, parity = 0, turn = 0;
  uint4 x[Stage::kSteps][kTokenTiles];
  uint4 ahead[kAhead + 1][Stage::kSteps][kTokenTiles];  // for the following stages
  int ahead_first = 0;
  const auto load_next = [&](uint4(&to)[Stage::kSteps][kTokenTiles]) {
    load(to, ahead_first);
    ahead_first += Stage::kColumns;
    if (ahead_first == padded) ahead_first = 0;
  };
  if constexpr (kReadsAhead) {
    load_next(x);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) load_next(ahead[i]);
  }
  const RuntimeActivation activation(p.activation);
  for (int tile = blockIdx.x; tile < num_tiles; tile += gridDim.x, turn ^= 1) {
    const int output = tile * kTileOutputs + from / 4;
    float added[2] = {};
    if (stores) LoadAdded(p, output, token, added);
    float sums[kTokenTiles][4] = {};
    for (int first = 0; first < depth; first += Stage::kColumns) {
      if constexpr (!kReadsAhead) load(x, first);
      BarrierWait(full + stage, parity);
      const char* at = ring + stage * stage_bytes;
      if (kFormat != WeightFormat::kInt4 || p.weights.scales_per_block == 1) {
        Consume<kFormat, kTokenTiles, true>(at, depth - first, 1, x, sums);
      } else {
        Consume<kFormat, kTokenTiles, false>(at, depth - first, p.weights.scales_per_block, x,
                                             sums);
      }
      __syncwarp();
      if (lane == 0) BarrierArrive(empty + stage);
      if (++stage == num_stages) stage = 0, parity ^= 1;
      if constexpr (kReadsAhead) {
#pragma unroll
        for (int s = 0; s < Stage::kSteps; ++s) {
#pragma unroll
          for (int n = 0; n < kTokenTiles; ++n) {
            x[s][n] = ahead[0][s][n];
#pragma unroll
            for (int i = 1; i < kAhead; ++i) ahead[i - 1][s][n] = ahead[i][s][n];
          }
        }
        load_next(ahead[kAhead - 1]);
      }
    }
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n)
      parts[turn][warp][n][lane] = {sums[n][0], sums[n][1], sums[n][2], sums[n][3]};
    float factors[2] = {factor, factor};
    if (stores && kFormat == WeightFormat::kFp8) {
      factors[0] *= p.weights.row_scales[output], factors[1] *= p.weights.row_scales[output + 8];
    }
    SyncConsumers<kWarps>();
    if (!stores) continue;
    float low = 0.0f, high = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float* part = reinterpret_cast<const float*>(&parts[turn][w][token_tile][from]);
      low += part[b];
      high += part[2 + b];
    }
    Store(p, tile * kTileOutputs, from / 4, token, low * factors[0], high * factors[1], added,
          activation);
  }
}

template <WeightFormat kFormat>
void LaunchFormat(const StreamGemmParams& p, int num_processors, cudaStream_t stream) {
  constexpr int kWarps = StageShape<kFormat>::kWarps;
  const StreamGemmPlan plan = PlanFor<kFormat>(p.weights, p.num_rows, p.norm_weight != nullptr);
  int shared_bytes =
      plan.num_stages * StageShape<kFormat>::Bytes(p.weights.scales_per_block) + plan.input_bytes;
  if (shared_bytes < kMinSharedBytes) shared_bytes = kMinSharedBytes;
  const int tiles = p.weights.num_outputs / kTileOutputs;
  int warps_a_row = kWarps;
  while (warps_a_row > 1 && warps_a_row * p.num_rows > kWarps) warps_a_row /= 2;
  const auto launch = [&](auto kernel) {
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    Launch(kernel, tiles < num_processors ? tiles : num_processors,
           32 * (kWarps + StageShape<kFormat>::kProducers), shared_bytes, stream, p,
           plan.num_stages, warps_a_row);
  };
  if constexpr (kFormat == WeightFormat::kBf16) {  // CanStream() asks for a shared input
    p.num_rows <= 8 ? launch(StreamGemmKernel<kFormat, 1, true>)
                    : launch(StreamGemmKernel<kFormat, 2, true>);
  } else if (p.num_rows <= 8) {
    plan.in_shared ? launch(StreamGemmKernel<kFormat, 1, true>)
                   : launch(StreamGemmKernel<kFormat, 1, false>);
  } else {
    plan.in_shared ? launch(StreamGemmKernel<kFormat, 2, true>)
                   : launch(StreamGemmKernel<kFormat, 2, false>);
  }
}

}  // namespace stream_gemm

void StreamGemmBf16(const StreamGemmParams& params, int num_processors, cudaStream_t stream);
void StreamGemmFp8(const StreamGemmParams& params, int num_processors, cudaStream_t stream);
void StreamGemmInt4(const StreamGemmParams& params, int num_processors, cudaStream_t stream);

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
