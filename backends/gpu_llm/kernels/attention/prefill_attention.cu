// Prefill attention. A block of threads handles tiles of kQueryRows rows of one key/value head, one
// after the other: row r is query head r % group of token r / group. A producer warp group copies
// KV blocks to shared memory, ahead of the consumers and into the next tile. Two consumer groups of
// four warps have 64 rows each. A step of a group is the scores of two KV blocks, and while their
// softmax is computed, the tensor cores add the values of the step before. That may be the last one
// of the previous tile, so that they do not wait between tiles. For a quantized cache the producer
// group copies the blocks as they are and unpacks them to the bf16 layout. The last block of a
// context may contain values of another owner after the context's end, even NaN. Scores there are
// replaced and values are cleared, because 0 x NaN is NaN. Bound by the tensor cores, and by the
// power that a GPU may draw.
#include <algorithm>

#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/head_dims.h"
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
constexpr int kBehindAll = 1 << 30;  // a position that no query sees

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

  // scores = queries x keys^T of a step: issued without waiting.
  template <int kScores>
  __device__ void Multiply(float (&scores)[kScores], uint32_t keys) {
    constexpr int kStepsAPanel = Shape::kPanelBytes / 32;
    constexpr int kQueryPanel = kBlockTokens * Shape::kPanelBytes;  // 64 rows, too
    constexpr int kKeyPanel = kScores / 32 * kQueryPanel;
    WgmmaBegin();
#pragma unroll
    for (int s = 0; s < kHeadDim / 16; ++s) {
      const int panel = s / kStepsAPanel, in_panel = s % kStepsAPanel * 32;
      const uint64_t b = MatrixDescriptor<Shape::kPanelBytes>(keys + panel * kKeyPanel + in_panel);
      if constexpr (Shape::kQueriesInShared) {
        const uint32_t a = shared + panel * kQueryPanel + in_panel;
        Wgmma(scores, MatrixDescriptor<Shape::kPanelBytes>(a), b, s != 0);
      } else {
        Wgmma(scores, registers[s][0], registers[s][1], registers[s][2], registers[s][3], b,
              s != 0);
      }
    }
    WgmmaCommit();
  }
};

// out += weights x values of a step: issued without waiting. `values`: [blocks] of kTileBytes.
template <int kHeadDim, int kWeights>
__device__ __forceinline__ void AddValues(float (&out)[kHeadDim / 2],
                                          const uint32_t (&weights)[kWeights], uint32_t values) {
  WgmmaBegin();
#pragma unroll
  for (int s = 0; s < kWeights / 4; ++s) {
    const uint32_t from = values + s / 4 * static_cast<uint32_t>(TileBytes(kHeadDim)) + s % 4 * 32;
    Wgmma(out, weights[4 * s], weights[4 * s + 1], weights[4 * s + 2], weights[4 * s + 3],
          MatrixDescriptor<128>(from), 1);
  }
  WgmmaCommit();
}

// The consumer groups take turns to issue their products, so that one computes its softmax while
// the tensor cores compute the products of the other.
__device__ __forceinline__ void TakeTurn(int consumer) {
  asm volatile("bar.sync %0, %1;" ::"r"(5 + consumer), "n"(128 * kConsumers) : "memory");
}
__device__ __forceinline__ void GiveTurn(int consumer) {
  asm volatile("bar.arrive %0, %1;" ::"r"(6 - consumer), "n"(128 * kConsumers) : "memory");
}

// The rows of a tile that a thread of a consumer group has: two of the group's 64.
struct TileRows {
  int index[2], position[2];
  // Positions of the group's first and last row: blocks that all rows see completely need no mask.
  int group_first, group_last;

  __device__ __forceinline__ TileRows(const PrefillTile& tile, int group) {
    const int consumer = threadIdx.x / 128 - 1, warp = threadIdx.x % 128 / 32;
    const int first = tile.tile * kQueryRows + consumer * 64;
    const auto position_of = [&](int row) { return tile.num_cached + row / group; };
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      index[half] = first + warp * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half;
      position[half] = position_of(index[half]);
    }
    group_first = position_of(first), group_last = position_of(first + 63);
  }
};

// Where the results of a thread's rows go, and the factors of their sums.
struct Results {
  bf16* to[2] = {};  // null: not a row of the tile
  float scale[2];

  __device__ __forceinline__ Results() {}
  __device__ __forceinline__ Results(const PrefillAttentionParams& p, const PrefillTile& tile,
                                     int kv_head, const TileRows& rows, const SoftmaxState& state) {
    const int group = p.num_heads / p.num_kv_heads;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = state.sum[half];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      scale[half] = 1.0f / sum;
      const int index = rows.index[half];
      if (index >= tile.num_tokens * group) continue;
      to[half] = p.out + int64_t{tile.first_row + index / group} * p.out_stride +
                 (kv_head * group + index % group) * p.head_dim + threadIdx.x % 4 * 2;
    }
  }

  template <int kValues>
  __device__ __forceinline__ void Store(const float (&out)[kValues]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (to[half] == nullptr) continue;
#pragma unroll
      for (int n = 0; n < kValues / 4; ++n) {
        *reinterpret_cast<uint32_t*>(to[half] + 8 * n) =
            PackBf16(out[4 * n + 2 * half] * scale[half], out[4 * n + 2 * half + 1] * scale[half]);
      }
    }
  }
};

// Computes all tiles of a block of threads with one of its consumer groups. The products of a step
// are issued together: the scores of the step and the weighted values of the step before, which may
// be the last one of the previous tile.
template <int kHeadDim, CacheFormat kFormat>
__device__ __forceinline__ void Consume(const PrefillAttentionParams& p, char* shared, char* stages,
                                        const PrefillBarriers& barriers) {
  using Shape = PrefillShape<kHeadDim, kFormat>;
  constexpr int kBlocks = Shape::kBlocks;
  const int group = p.num_heads / p.num_kv_heads;
  const int consumer = threadIdx.x / 128 - 1;
  int first = 0;  // number of the tile's first step, counted over all tiles
  const auto stage_of = [&](int step) { return (first + step) % Shape::kStages; };
  const auto wait_for = [&](uint64_t* full, int step) {
    BarrierWait(full + stage_of(step), (first + step) / Shape::kStages & 1);
  };
  const auto release = [&](uint64_t* empty, int step) {
    if (threadIdx.x % 128 == 0) BarrierArrive(empty + stage_of(step));
  };
  const auto stage_at = [&](int step) {
    return SharedAddress(stages + stage_of(step) * Shape::kStageBytes);
  };

  PrefillWork<kBlocks> work, next;
  if (!GetPrefillWork(p, 0, work)) return;
  QueryOperand<kHeadDim> queries;
  float out[kHeadDim / 2] = {}, scores[32 * kBlocks], rescale[2];
  uint32_t weights[16 * kBlocks];
  const auto add_values = [&](int step) {
    AddValues<kHeadDim>(out, weights,
                        stage_at(step) + static_cast<uint32_t>(Shape::ValuesOffset(0)));
  };
  // The scores of the first step of a tile that no other one precedes.
  const auto begin_tile = [&] {
    queries.Load(p, work.tile, group, work.kv_head * group, shared);
    wait_for(barriers.full_keys, 0);
    queries.Multiply(scores, stage_at(0));
    WgmmaWait<0>();
  };
  begin_tile();
  Results previous;  // of the previous tile
  int previous_stage = -1;
  for (int turn = 1;; ++turn) {
    const int num_steps = work.num_steps();
    const bool has_next = GetPrefillWork(p, turn, next);
    const TileRows rows(work.tile, group);
    SoftmaxState state = {{kNegativeInfinity, kNegativeInfinity}, {0.0f, 0.0f}};
    // The scores of a step are there.
    const auto finish_scores = [&](int step) {
      FenceAccumulators(scores);
      release(barriers.empty_keys, step);
      if (Shape::kJoinsTiles && step == num_steps - 1 && has_next)
        queries.Load(p, next.tile, group, next.kv_head * group, shared);
      int first_token[kBlocks];
      bool masks = false;
#pragma unroll
      for (int part = 0; part < kBlocks; ++part) {
        const int block = work.Block(step, part);
        first_token[part] = block < 0 ? kBehindAll : block * kBlockTokens;
        masks |= first_token[part] + kBlockTokens - 1 > rows.group_first ||
                 (p.window > 0 && first_token[part] + p.window <= rows.group_last);
      }
      ScoresToWeights(p, scores, state, rescale, first_token, rows.position, masks);
      WgmmaWait<0>();
      FenceAccumulators(out);
    };
    finish_scores(0);
    if (previous_stage >= 0) {
      if (threadIdx.x % 128 == 0) BarrierArrive(barriers.empty_values + previous_stage);
      previous.Store(out);
    }
#pragma unroll
    for (float& value : out) value = 0.0f;
    PackWeights(scores, weights);
    for (int step = 1; step < num_steps; ++step) {
      wait_for(barriers.full_keys, step);
      wait_for(barriers.full_values, step - 1);
      TakeTurn(consumer);
      queries.Multiply(scores, stage_at(step));
      add_values(step - 1);
      GiveTurn(consumer);
      WgmmaWait<1>();
      finish_scores(step);
      release(barriers.empty_values, step - 1);
      Rescale(out, rescale);
      PackWeights(scores, weights);
    }
    wait_for(barriers.full_values, num_steps - 1);
    if (!Shape::kUnpacks && work.num_last < kBlockTokens) {
      // Done by both consumer groups together; the values after the context belong to another
      // owner. The last block may be there twice.
      char* last = stages + stage_of(num_steps - 1) * Shape::kStageBytes;
      for (int part = 0; part < kBlocks; ++part) {
        if (work.LoadedBlock(num_steps - 1, part) != work.last_block) continue;
        ClearValues<kHeadDim, kBlockTokens>(last + Shape::ValuesOffset(part), 0, work.num_last,
                                            static_cast<int>(threadIdx.x) - 128, 128 * kConsumers);
      }
      asm volatile("bar.sync 3, %0;" ::"n"(128 * kConsumers) : "memory");
    }
    if (!Shape::kJoinsTiles || !has_next) {
      add_values(num_steps - 1);
      WgmmaWait<0>();
      FenceAccumulators(out);
      Results(p, work.tile, work.kv_head, rows, state).Store(out);
      if (!has_next) return;
      release(barriers.empty_values, num_steps - 1);
      first += num_steps;
      work = next;
      begin_tile();
      continue;
    }
    wait_for(barriers.full_keys, num_steps);
    TakeTurn(consumer);
    queries.Multiply(scores, stage_at(num_steps));
    add_values(num_steps - 1);
    GiveTurn(consumer);
    previous = Results(p, work.tile, work.kv_head, rows, state);
    previous_stage = stage_of(num_steps - 1);
    first += num_steps;
    work = next;
    WgmmaWait<1>();
  }
}

template <int kHeadDim, CacheFormat kFormat>
__global__ void __launch_bounds__(kThreads, 1) PrefillAttentionKernel(PrefillAttentionParams p) {
  using Shape = PrefillShape<kHeadDim, kFormat>;
  constexpr int kStages = Shape::kStages;
  extern __shared__ char unaligned[];
  char* shared = unaligned + (1024 - SharedAddress(unaligned) % 1024) % 1024;
  char* stages = shared + Shape::kQueryBytes;
  char* packed = stages + kStages * Shape::kStageBytes;
  auto* first_barrier =
      reinterpret_cast<uint64_t*>(packed + Shape::kPackedStages * Shape::kPackedBytes);
  const PrefillBarriers barriers = {first_barrier, first_barrier + kStages,
                                    first_barrier + 2 * kStages, first_barrier + 3 * kStages,
                                    first_barrier + 4 * kStages};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Shape::kPackedStages; ++stage)
      BarrierInit(barriers.arrived + stage, 1);
    for (int stage = 0; stage < kStages; ++stage) {
      BarrierInit(barriers.full_keys + stage, Shape::kUnpacks ? 128 : 1);
      BarrierInit(barriers.full_values + stage, Shape::kUnpacks ? 128 : 1);
      BarrierInit(barriers.empty_keys + stage, kConsumers);
      BarrierInit(barriers.empty_values + stage, kConsumers);
    }
    BarrierInitFence();
  }
  __syncthreads();
  LaunchNext();
  WaitForPrevious();
  if (threadIdx.x < 128) {
    ReleaseRegisters<Shape::kProducerRegisters>();
    if constexpr (Shape::kUnpacks) {
      ProduceUnpacked<kHeadDim, kFormat>(p, stages, barriers, packed);
    } else if (threadIdx.x == 0) {
      Produce<kHeadDim>(p, stages, barriers);
    }
    return;
  }
  AcquireRegisters<Shape::kConsumerRegisters>();
  if (threadIdx.x >= 256) GiveTurn(1);  // the first consumer group begins
  Consume<kHeadDim, kFormat>(p, shared, stages, barriers);
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
  ForHeadDim(params.head_dim, [&](auto head_dim) { LaunchFor<head_dim.value>(params, stream); });
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
