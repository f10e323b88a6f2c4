// One block of threads a tile of kQueryRows queries of one key/value head: row r is query head r %
// group of token r / group. A producer brings KV blocks in by bulk copies, ahead of two consumer
// groups of four warps with 64 rows each. The next block's scores are computed while the softmax of
// this one runs. Of a cache in one byte an element the producers, a group of four warps as well,
// bring blocks in as they are and unpack them to what the consumers take.
#include "gpu_llm/kernels/async_copy.cuh"
#include "gpu_llm/kernels/byte_format.cuh"
#include "gpu_llm/kernels/cache_layout.h"
#include "gpu_llm/kernels/device.cuh"
#include "gpu_llm/kernels/launch.h"
#include "gpu_llm/kernels/prefill_attention.h"
#include "gpu_llm/kernels/wgmma.cuh"

namespace nereid::gpu {
namespace {

constexpr int kConsumers = 2;  // groups of 128 threads
constexpr int kThreads = 128 * (kConsumers + 1);

template <int kHeadDim, CacheFormat kFormat>
struct PrefillShape {
  static constexpr bool kQueriesInShared = kHeadDim > 128;           // else in registers
  static constexpr int kPanelBytes = KeyPanelColumns(kHeadDim) * 2;  // of a row
  static constexpr int kStages = kHeadDim > 128 ? 2 : 4;
  static constexpr int kQueryBytes = kQueriesInShared ? kQueryRows * kHeadDim * 2 : 0;
  static constexpr bool kUnpacks = kFormat != CacheFormat::kBf16;
  static constexpr int kPackedStages = !kUnpacks ? 0 : kHeadDim > 128 ? 1 : 2;
  static constexpr int kPackedBytes = kUnpacks ? static_cast<int>(HeadBytes(kHeadDim, kFormat)) : 0;
  static constexpr int kSharedBytes = 1024 + kQueryBytes +
                                      kStages * static_cast<int>(HeadBytes(kHeadDim)) +
                                      kPackedStages * kPackedBytes + 256;
  // Registers of a thread that produces, and of one that consumes.
  static constexpr int kProducerRegisters = kUnpacks ? 80 : 24;
  static constexpr int kConsumerRegisters = kUnpacks ? 208 : 240;
};

struct Softmax {
  float max[2], sum[2];
};

// The queries of this thread's two rows, as operand a of step s; or all of them into shared memory,
// as K-major panels.
template <int kHeadDim>
struct Queries {
  using Shape = PrefillShape<kHeadDim, CacheFormat::kBf16>;
  uint32_t registers[Shape::kQueriesInShared ? 1 : kHeadDim / 16][4];
  uint32_t shared = 0;  // address of this group's rows

  __device__ void Load(const PrefillAttentionParams& p, const PrefillTile& tile, int group,
                       int first_head, char* to) {
    const int consumer = threadIdx.x / 128 - 1, warp = threadIdx.x % 128 / 32,
              g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const auto row_address = [&](int row) -> const bf16* {
      const int index = tile.tile * kQueryRows + row;
      if (index >= tile.num_tokens * group) return nullptr;
      return p.qkv + int64_t{tile.first_row + index / group} * p.qkv_stride +
             (first_head + index % group) * kHeadDim;
    };
    if constexpr (!Shape::kQueriesInShared) {
      const bf16* rows[2] = {row_address(consumer * 64 + warp * 16 + g),
                             row_address(consumer * 64 + warp * 16 + g + 8)};
#pragma unroll
      for (int s = 0; s < kHeadDim / 16; ++s) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const bf16* row = rows[i % 2];
          registers[s][i] =
              row == nullptr ? 0
                             : *reinterpret_cast<const uint32_t*>(row + 16 * s + i / 2 * 8 + 2 * t);
        }
      }
    } else {
      char* mine = to + consumer * 64 * kHeadDim * 2;
      for (int i = threadIdx.x % 128; i < 64 * kHeadDim / 8; i += 128) {
        const int row = i / (kHeadDim / 8), column = i % (kHeadDim / 8) * 8;
        const bf16* from = row_address(consumer * 64 + row);
        *reinterpret_cast<uint4*>(mine + KeyOffset<kHeadDim>(row, column)) =
            from == nullptr ? uint4{} : *reinterpret_cast<const uint4*>(from + column);
      }
      ProxyFence();
      asm volatile("bar.sync %0, 128;" ::"r"(1 + consumer) : "memory");
      shared = SharedAddress(mine);
    }
  }

  // scores = queries x keys^T: issued, not waited for.
  __device__ void Multiply(float (&scores)[32], uint32_t keys) {
    constexpr int kStepsAPanel = Shape::kPanelBytes / 32;
    WgmmaBegin();
#pragma unroll
    for (int s = 0; s < kHeadDim / 16; ++s) {
      const int offset =
          s / kStepsAPanel * kBlockTokens * Shape::kPanelBytes + s % kStepsAPanel * 32;
      const uint64_t b = MatrixDescriptor<Shape::kPanelBytes>(keys + offset);
      if constexpr (Shape::kQueriesInShared) {
        Wgmma(scores, MatrixDescriptor<Shape::kPanelBytes>(shared + offset), b, s != 0);
      } else {
        Wgmma(scores, registers[s][0], registers[s][1], registers[s][2], registers[s][3], b,
              s != 0);
      }
    }
    WgmmaCommit();
  }
};

// Scores of one KV block become weights, in place; `out` and the sums are rescaled to the new
// maxima.
template <int kValues>
__device__ __forceinline__ void ToWeights(const PrefillAttentionParams& p, float (&scores)[32],
                                          Softmax& state, float (&out)[kValues], int first_token,
                                          const int (&position)[2], bool masks) {
  const int t = threadIdx.x % 4;
  // exp(x) = exp2(x * log2(e)); without a soft cap the scale goes into the same multiplication.
  constexpr float kLog2E = 1.4426950408889634f;
  float factor = p.scale * kLog2E;
  if (p.soft_cap > 0.0f) {
#pragma unroll
    for (float& score : scores) score = p.soft_cap * tanhf(score * p.scale / p.soft_cap);
    factor = kLog2E;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float max = state.max[half];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        float& score = scores[4 * j + 2 * half + b];
        if (masks) {
          const int token = first_token + 8 * j + 2 * t + b;
          if (token > position[half] || (p.window > 0 && token + p.window <= position[half]))
            score = kNegativeInfinity;
        }
        max = fmaxf(max, score);
      }
    }
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
    const float base = max == kNegativeInfinity ? 0.0f : max * factor;
    const float keep = exp2f(state.max[half] * factor - base);
    state.max[half] = max;
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        float& score = scores[4 * j + 2 * half + b];
        score = exp2f(score * factor - base);
        sum += score;
      }
    }
    state.sum[half] = state.sum[half] * keep + sum;
#pragma unroll
    for (int n = 0; n < kValues / 4; ++n)
      out[4 * n + 2 * half] *= keep, out[4 * n + 2 * half + 1] *= keep;
  }
}

// out += weights x values: issued, not waited for.
template <int kHeadDim>
__device__ __forceinline__ void AddValues(float (&out)[kHeadDim / 2], const uint32_t (&weights)[16],
                                          uint32_t values) {
  WgmmaBegin();
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    Wgmma(out, weights[4 * s], weights[4 * s + 1], weights[4 * s + 2], weights[4 * s + 3],
          MatrixDescriptor<128>(values + 32 * s), 1);
  }
  WgmmaCommit();
}

// Two halves, times factors, as bf16.
__device__ __forceinline__ uint32_t ScaleHalves(uint32_t halves, float low, float high) {
  const float2 values = __half22float2(*reinterpret_cast<const __half2*>(&halves));
  return PackBf16(values.x * low, values.y * high);
}

// A block of one head as it lies in a cache of one byte an element, to the tiles that the consumers
// take; by the 128 threads of the producer's group.
template <int kHeadDim, CacheFormat kFormat>
__device__ void Unpack(const char* packed, char* to) {
  const auto* factors = reinterpret_cast<const float*>(packed + ByteScalesOffset(kHeadDim));
  constexpr int kPieces = kHeadDim / 16;
  for (int i = threadIdx.x; i < kBlockTokens * kPieces; i += 128) {
    const int token = i / kPieces, column = i % kPieces * 16;
    const uint4 codes =
        *reinterpret_cast<const uint4*>(packed + ByteKeyOffset<kHeadDim>(token, column));
    const float factor = factors[token];
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
    uint32_t pairs[8];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      pairs[2 * w] = ScaleHalves(Decode2<kFormat>(words[w] & 0xffffu), factor, factor);
      pairs[2 * w + 1] = ScaleHalves(Decode2<kFormat>(words[w] >> 16), factor, factor);
    }
    *reinterpret_cast<uint4*>(to + KeyOffset<kHeadDim>(token, column)) = {pairs[0], pairs[1],
                                                                          pairs[2], pairs[3]};
    *reinterpret_cast<uint4*>(to + KeyOffset<kHeadDim>(token, column + 8)) = {pairs[4], pairs[5],
                                                                              pairs[6], pairs[7]};
  }
  const char* values = packed + ByteTileBytes(kHeadDim);
  char* value_tile = to + TileBytes(kHeadDim);
  constexpr int kQuads = kHeadDim / 4;
  for (int i = threadIdx.x; i < kBlockTokens / 8 * kQuads; i += 128) {
    const int token = i / kQuads * 8, column = i % kQuads * 4;  // eight tokens of four columns
    uint32_t pairs[4][4];                                       // [column][tokens 2 k, 2 k + 1]
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint32_t low = *reinterpret_cast<const uint32_t*>(
          values + ByteValueOffset<kHeadDim>(token + 2 * k, column));
      const uint32_t high = *reinterpret_cast<const uint32_t*>(
          values + ByteValueOffset<kHeadDim>(token + 2 * k + 1, column));
      const float2 both = *reinterpret_cast<const float2*>(factors + kBlockTokens + token + 2 * k);
      const uint32_t first = __byte_perm(low, high, 0x5140);   // columns 0, 1 of both tokens
      const uint32_t second = __byte_perm(low, high, 0x7362);  // columns 2, 3
      pairs[0][k] = ScaleHalves(Decode2<kFormat>(first & 0xffffu), both.x, both.y);
      pairs[1][k] = ScaleHalves(Decode2<kFormat>(first >> 16), both.x, both.y);
      pairs[2][k] = ScaleHalves(Decode2<kFormat>(second & 0xffffu), both.x, both.y);
      pairs[3][k] = ScaleHalves(Decode2<kFormat>(second >> 16), both.x, both.y);
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      *reinterpret_cast<uint4*>(value_tile + ValueOffset<kHeadDim>(token, column + c)) = {
          pairs[c][0], pairs[c][1], pairs[c][2], pairs[c][3]};
    }
  }
}

// KV blocks of a tile of queries, in order, into the ring.
template <int kHeadDim, CacheFormat kFormat>
__device__ void ProduceUnpacked(const PrefillAttentionParams& p, const PrefillTile& tile,
                                int kv_head, int first_block, int num_blocks, char* stages,
                                uint64_t* full, uint64_t* empty, uint64_t* arrived, char* packed) {
  using Shape = PrefillShape<kHeadDim, kFormat>;
  const char* cache = static_cast<const char*>(p.cache) + int64_t{kv_head} * Shape::kPackedBytes;
  const auto copy = [&](int i) {
    if (i >= num_blocks || threadIdx.x != 0) return;
    uint64_t* barrier = arrived + i % Shape::kPackedStages;
    const int block = p.words[tile.table_offset + first_block + i];
    BarrierExpect(barrier, Shape::kPackedBytes);
    BulkCopy(packed + i % Shape::kPackedStages * Shape::kPackedBytes,
             cache + int64_t{block} * p.num_kv_heads * Shape::kPackedBytes, Shape::kPackedBytes,
             barrier);
  };
  for (int i = 0; i < Shape::kPackedStages; ++i) copy(i);
  for (int i = 0; i < num_blocks; ++i) {
    const int stage = i % Shape::kStages;
    if (i >= Shape::kStages) BarrierWait(empty + stage, (i / Shape::kStages - 1) & 1);
    BarrierWait(arrived + i % Shape::kPackedStages, i / Shape::kPackedStages & 1);
    Unpack<kHeadDim, kFormat>(packed + i % Shape::kPackedStages * Shape::kPackedBytes,
                              stages + stage * HeadBytes(kHeadDim));
    ProxyFence();
    BarrierArrive(full + stage);
    asm volatile("bar.sync 3, 128;" ::: "memory");  // all have read what the next copy overwrites
    copy(i + Shape::kPackedStages);
  }
}

template <int kHeadDim, CacheFormat kFormat>
__global__ void __launch_bounds__(kThreads, 1) PrefillAttentionKernel(PrefillAttentionParams p) {
  using Shape = PrefillShape<kHeadDim, kFormat>;
  extern __shared__ char unaligned[];
  char* shared = unaligned + (1024 - SharedAddress(unaligned) % 1024) % 1024;
  char* stages = shared + Shape::kQueryBytes;
  char* packed = stages + Shape::kStages * HeadBytes(kHeadDim);
  auto* full = reinterpret_cast<uint64_t*>(packed + Shape::kPackedStages * Shape::kPackedBytes);
  uint64_t* empty = full + Shape::kStages;
  uint64_t* arrived = empty + Shape::kStages;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Shape::kPackedStages; ++stage) BarrierInit(arrived + stage, 1);
    for (int stage = 0; stage < Shape::kStages; ++stage) {
      BarrierInit(full + stage, Shape::kUnpacks ? 128 : 1);
      BarrierInit(empty + stage, kConsumers);
    }
    BarrierInitFence();
  }
  __syncthreads();
  LaunchNext();
  WaitForPrevious();
  const PrefillTile tile = p.tiles[blockIdx.x / p.num_kv_heads];
  const int kv_head = blockIdx.x % p.num_kv_heads;
  const int group = p.num_heads / p.num_kv_heads;
  const int last_index = min((tile.tile + 1) * kQueryRows, tile.num_tokens * group) - 1;
  const int first_position = tile.num_cached + tile.tile * kQueryRows / group;
  const int last_position = tile.num_cached + last_index / group;
  const int first_block = p.window > 0 ? max(0, first_position - p.window + 1) / kBlockTokens : 0;
  const int num_blocks = last_position / kBlockTokens + 1 - first_block;

  if (threadIdx.x < 128) {
    GiveRegisters<Shape::kProducerRegisters>();
    if constexpr (Shape::kUnpacks) {
      ProduceUnpacked<kHeadDim, kFormat>(p, tile, kv_head, first_block, num_blocks, stages, full,
                                         empty, arrived, packed);
    } else if (threadIdx.x == 0) {
      const char* cache = static_cast<const char*>(p.cache) + kv_head * HeadBytes(kHeadDim);
      for (int i = 0; i < num_blocks; ++i) {
        const int stage = i % Shape::kStages;
        if (i >= Shape::kStages) BarrierWait(empty + stage, (i / Shape::kStages - 1) & 1);
        const int block = p.words[tile.table_offset + first_block + i];
        BarrierExpect(full + stage, static_cast<uint32_t>(HeadBytes(kHeadDim)));
        BulkCopy(stages + stage * HeadBytes(kHeadDim),
                 cache + int64_t{block} * p.num_kv_heads * HeadBytes(kHeadDim),
                 static_cast<uint32_t>(HeadBytes(kHeadDim)), full + stage);
      }
    }
    return;
  }
  TakeRegisters<Shape::kConsumerRegisters>();
  const int consumer = threadIdx.x / 128 - 1, warp = threadIdx.x % 128 / 32,
            g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  Queries<kHeadDim> queries;
  queries.Load(p, tile, group, kv_head * group, shared);
  int index[2], position[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    index[half] = tile.tile * kQueryRows + consumer * 64 + warp * 16 + g + 8 * half;
    position[half] = tile.num_cached + index[half] / group;
  }
  // Rows of this group of warps: blocks that all of them see whole need no mask.
  const int group_first = tile.num_cached + (tile.tile * kQueryRows + consumer * 64) / group;
  const int group_last = tile.num_cached + (tile.tile * kQueryRows + consumer * 64 + 63) / group;

  float out[kHeadDim / 2] = {};
  Softmax state = {{kNegativeInfinity, kNegativeInfinity}, {0.0f, 0.0f}};
  const auto stage_address = [&](int i) {
    return SharedAddress(stages + i % Shape::kStages * HeadBytes(kHeadDim));
  };
  for (int i = 0; i < num_blocks; ++i) {
    float scores[32];
    BarrierWait(full + i % Shape::kStages, i / Shape::kStages & 1);
    queries.Multiply(scores, stage_address(i));
    WgmmaWait<0>();
    Pin(scores);
    Pin(out);
    const int first_token = (first_block + i) * kBlockTokens;
    const bool masks = first_token + kBlockTokens - 1 > group_first ||
                       (p.window > 0 && first_token + p.window <= group_last);
    ToWeights(p, scores, state, out, first_token, position, masks);
    uint32_t weights[16];
#pragma unroll
    for (int s = 0; s < 4; ++s) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int j = 2 * s + k / 2;
        weights[4 * s + k] = PackBf16(scores[4 * j + 2 * (k % 2)], scores[4 * j + 2 * (k % 2) + 1]);
      }
    }
    AddValues<kHeadDim>(out, weights,
                        stage_address(i) + static_cast<uint32_t>(TileBytes(kHeadDim)));
    WgmmaWait<0>();
    Pin(out);
    if (threadIdx.x % 128 == 0) BarrierArrive(empty + i % Shape::kStages);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = state.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (index[half] >= tile.num_tokens * group) continue;
    bf16* to = p.out + (int64_t{tile.first_row + index[half] / group} * p.num_heads +
                        kv_head * group + index[half] % group) *
                           kHeadDim;
    const float scale = 1.0f / sum;
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
      *reinterpret_cast<uint32_t*>(to + 8 * n + 2 * t) =
          PackBf16(out[4 * n + 2 * half] * scale, out[4 * n + 2 * half + 1] * scale);
    }
  }
}

template <int kHeadDim, CacheFormat kFormat>
void LaunchAs(const PrefillAttentionParams& p, cudaStream_t stream) {
  constexpr int kShared = PrefillShape<kHeadDim, kFormat>::kSharedBytes;
  static_assert(kShared <= 227 * 1024);
  (void)cudaFuncSetAttribute(PrefillAttentionKernel<kHeadDim, kFormat>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  Launch(PrefillAttentionKernel<kHeadDim, kFormat>, p.num_tiles * p.num_kv_heads, kThreads, kShared,
         stream, p);
}

template <int kHeadDim>
void LaunchFor(const PrefillAttentionParams& p, cudaStream_t stream) {
  switch (p.format) {
    case CacheFormat::kBf16:
      return LaunchAs<kHeadDim, CacheFormat::kBf16>(p, stream);
    case CacheFormat::kFp8:
      return LaunchAs<kHeadDim, CacheFormat::kFp8>(p, stream);
    case CacheFormat::kInt8:
      return LaunchAs<kHeadDim, CacheFormat::kInt8>(p, stream);
  }
}

}  // namespace

void PrefillAttention(const PrefillAttentionParams& params, cudaStream_t stream) {
  switch (params.head_dim) {
    case 16:
      return LaunchFor<16>(params, stream);
    case 32:
      return LaunchFor<32>(params, stream);
    case 64:
      return LaunchFor<64>(params, stream);
    case 80:
      return LaunchFor<80>(params, stream);
    case 96:
      return LaunchFor<96>(params, stream);
    case 128:
      return LaunchFor<128>(params, stream);
    case 256:
      return LaunchFor<256>(params, stream);
  }
}

}  // namespace nereid::gpu
