// Prefill attention. A block of threads handles tiles of kQueryRows rows of one key/value head, one
// after the other: row r is query head r % group of token r / group. A producer warp group copies
// KV blocks to shared memory, ahead of the consumers and into the next tile. Two consumer groups of
// four warps have 64 rows each. While a group computes the softmax of one block, the tensor cores
// add the values of the previous block. For a quantized cache the producer group copies the blocks
// as they are and unpacks them to the bf16 layout. The last block of a context may contain values
// of another owner after the context's end, even NaN. Scores there are replaced and values are
// cleared, because 0 x NaN is NaN. Bound by the tensor cores. 8,192 tokens, heads of 128, on an
// H200: 539 TFLOP/s, 68 % of cuBLAS.
#include <algorithm>

#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/partial_attention.cuh"
#include "backends/gpu_llm/kernels/attention/prefill_producer.cuh"
#include "backends/gpu_llm/kernels/attention/prefill_softmax.cuh"
#include "backends/gpu_llm/kernels/attention/prefill_work.cuh"
#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/device/wgmma.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

using namespace prefill_attention;

constexpr int kConsumers = 2;  // groups of 128 threads
constexpr int kThreads = 128 * (kConsumers + 1);

// The queries of this thread's two rows as operand a, in registers; for large heads in shared
// memory as K-major panels.
template <int kHeadDim>
struct QueryOperand {
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
      asm volatile("bar.sync %0, 128;" ::"r"(1 + consumer)
                   : "memory");  // the previous tile's queries have been read
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

  // scores = queries x keys^T: issued without waiting.
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

// out += weights x values: issued without waiting.
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

// Computes one tile with one of the consumer groups. `first`: number of its first KV block, counted
// over all tiles of this block of threads.
template <int kHeadDim, CacheFormat kFormat>
__device__ __forceinline__ void Consume(const PrefillAttentionParams& p, const PrefillWork& work,
                                        int first, char* shared, char* stages, uint64_t* full,
                                        uint64_t* empty) {
  using Shape = PrefillShape<kHeadDim, kFormat>;
  const PrefillTile& tile = work.tile;
  const int group = p.num_heads / p.num_kv_heads, num_blocks = work.blocks.count();
  const int consumer = threadIdx.x / 128 - 1, warp = threadIdx.x % 128 / 32,
            g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  QueryOperand<kHeadDim> queries;
  queries.Load(p, tile, group, work.kv_head * group, shared);
  int index[2], position[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    index[half] = tile.tile * kQueryRows + consumer * 64 + warp * 16 + g + 8 * half;
    position[half] = tile.num_cached + index[half] / group;
  }
  // Positions of this warp group's rows: blocks that all rows see completely need no mask.
  const int group_first = tile.num_cached + (tile.tile * kQueryRows + consumer * 64) / group;
  const int group_last = tile.num_cached + (tile.tile * kQueryRows + consumer * 64 + 63) / group;

  float out[kHeadDim / 2] = {};
  SoftmaxState state = {{kNegativeInfinity, kNegativeInfinity}, {0.0f, 0.0f}};
  const auto stage_of = [&](int i) { return (first + i) % Shape::kStages; };
  const auto keys_of = [&](int i) {
    return SharedAddress(stages + stage_of(i) * HeadBytes(kHeadDim));
  };
  const auto values_of = [&](int i) {
    return keys_of(i) + static_cast<uint32_t>(TileBytes(kHeadDim));
  };
  const auto wait_for = [&](int i) {
    BarrierWait(full + stage_of(i), (first + i) / Shape::kStages & 1);
    if (Shape::kUnpacks || i < num_blocks - 1 || work.num_last == kBlockTokens) return;
    // Done by both consumer groups together; the values after the context belong to another owner.
    ClearValues<kHeadDim, kBlockTokens>(
        stages + stage_of(i) * HeadBytes(kHeadDim) + TileBytes(kHeadDim), 0, 0, work.num_last,
        static_cast<int>(threadIdx.x) - 128, 128 * kConsumers);
    asm volatile("bar.sync 3, %0;" ::"n"(128 * kConsumers) : "memory");
  };
  const auto release = [&](int i) {
    if (threadIdx.x % 128 == 0) BarrierArrive(empty + stage_of(i));
  };
  const auto apply_softmax = [&](int i, float(&scores)[32], float(&rescale)[2]) {
    const int first_token = work.blocks[i] * kBlockTokens;
    const bool masks = first_token + kBlockTokens - 1 > group_first ||
                       (p.window > 0 && first_token + p.window <= group_last);
    ScoresToWeights(p, scores, state, rescale, first_token, position, masks);
  };
  float scores[32], rescale[2];
  uint32_t weights[16];
  wait_for(0);
  queries.Multiply(scores, keys_of(0));
  WgmmaWait<0>();
  FenceAccumulators(scores);
  apply_softmax(0, scores, rescale);
  PackWeights(scores, weights);
  for (int i = 1; i < num_blocks; ++i) {
    if constexpr (Shape::kOverlaps) {
      wait_for(i);
      queries.Multiply(scores, keys_of(i));
      AddValues<kHeadDim>(out, weights, values_of(i - 1));
      WgmmaWait<1>();
      FenceAccumulators(scores);
      apply_softmax(i, scores, rescale);
      WgmmaWait<0>();
      FenceAccumulators(out);
      release(i - 1);
    } else {
      AddValues<kHeadDim>(out, weights, values_of(i - 1));
      WgmmaWait<0>();
      FenceAccumulators(out);
      release(i - 1);
      wait_for(i);
      queries.Multiply(scores, keys_of(i));
      WgmmaWait<0>();
      FenceAccumulators(scores);
      apply_softmax(i, scores, rescale);
    }
    Rescale(out, rescale);
    PackWeights(scores, weights);
  }
  AddValues<kHeadDim>(out, weights, values_of(num_blocks - 1));
  WgmmaWait<0>();
  FenceAccumulators(out);
  release(num_blocks - 1);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = state.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (index[half] >= tile.num_tokens * group) continue;
    bf16* to = p.out + (int64_t{tile.first_row + index[half] / group} * p.num_heads +
                        work.kv_head * group + index[half] % group) *
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
  if (threadIdx.x < 128) {
    ReleaseRegisters<Shape::kProducerRegisters>();
    if constexpr (Shape::kUnpacks) {
      ProduceUnpacked<kHeadDim, kFormat>(p, stages, full, empty, arrived, packed);
    } else if (threadIdx.x == 0) {
      Produce<kHeadDim>(p, stages, full, empty);
    }
    return;
  }
  AcquireRegisters<Shape::kConsumerRegisters>();
  PrefillWork work, next;
  bool has_work = GetPrefillWork(p, 0, work);
  for (int turn = 1, first = 0; has_work; ++turn) {
    const bool has_next =
        GetPrefillWork(p, turn, next);  // loads the next work while this tile is computed
    Consume<kHeadDim, kFormat>(p, work, first, shared, stages, full, empty);
    first += work.blocks.count();
    work = next, has_work = has_next;
  }
}

template <int kHeadDim, CacheFormat kFormat>
void LaunchAs(const PrefillAttentionParams& p, cudaStream_t stream) {
  constexpr int kShared = PrefillShape<kHeadDim, kFormat>::kSharedBytes;
  static_assert(kShared <= 227 * 1024);
  (void)cudaFuncSetAttribute(PrefillAttentionKernel<kHeadDim, kFormat>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  const int count = p.num_tiles * p.num_kv_heads;
  Launch(PrefillAttentionKernel<kHeadDim, kFormat>,
         p.num_processors > 0 ? std::min(count, p.num_processors) : count, kThreads, kShared,
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

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
