// Decode attention over a bf16 cache. Grid: one block of threads for each DecodeItem, key/value
// head and 16 query rows. Four warps share each KV block, 16 tokens a warp. The blocks are in a
// ring in shared memory (kv_ring.cuh). The order of head columns (in Q x K^T) and of tokens (in P x
// V) is free as long as both operands agree. It is chosen so that each thread reads contiguous
// values.
//
// Lane = 4 g + t. Scores: column g of mma j (of 2) is token 4 (g / 2) + 2 j + g % 2. So a thread
// gets the scores of tokens 4 t to 4 t + 3 (columns 2 t and 2 t + 1 of each mma), which are the
// tokens it reads of each value column.
//
// Bound by memory bandwidth. 256 and 512 sequences of about 640 tokens, heads of 128: 88 and 90 %
// of an H200's 4.65 TB/s.
#include <algorithm>

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/decode_attention.cuh"
#include "backends/gpu_llm/kernels/attention/head_dims.h"
#include "backends/gpu_llm/kernels/attention/tree_rows.cuh"
#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/device/soft_cap.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

using namespace decode_attention;

template <int kHeadDim>
struct DecodeShape {
  static constexpr int kWide = kHeadDim / 32;  // steps of 32 columns, 16 bytes a thread
  static constexpr int kHasRest =
      kHeadDim % 32 != 0;                       // a last step of 16 columns, 8 bytes a thread
  static constexpr int kSteps = kHeadDim / 16;  // mma steps along head_dim
};

// kIsStaged: keys and values have stages of their own where a block is large.
template <int kHeadDim, bool kIsStaged>
constexpr int kRingParts = kIsStaged ? BlockParts(static_cast<int>(HeadBytes(kHeadDim))) : 1;
template <int kHeadDim, bool kIsStaged>
constexpr int kStageBytes = static_cast<int>(HeadBytes(kHeadDim)) / kRingParts<kHeadDim, kIsStaged>;
template <int kHeadDim, bool kIsStaged>
constexpr int kRingBytes =
    NumStages(kStageBytes<kHeadDim, kIsStaged>) * kStageBytes<kHeadDim, kIsStaged>;

// Fills 2 x kSteps registers: step s uses [2 s] and [2 s + 1].
template <int kHeadDim, typename Address>
__device__ __forceinline__ void LoadRow(uint32_t (&to)[2 * DecodeShape<kHeadDim>::kSteps], int t,
                                        const Address& address) {
  using Shape = DecodeShape<kHeadDim>;
#pragma unroll
  for (int s = 0; s < Shape::kWide; ++s) {
    const uint4 packed = *reinterpret_cast<const uint4*>(address(32 * s + 8 * t));
    to[4 * s] = packed.x, to[4 * s + 1] = packed.y, to[4 * s + 2] = packed.z,
           to[4 * s + 3] = packed.w;
  }
  if constexpr (Shape::kHasRest) {
    const uint2 packed = *reinterpret_cast<const uint2*>(address(32 * Shape::kWide + 4 * t));
    to[4 * Shape::kWide] = packed.x, to[4 * Shape::kWide + 1] = packed.y;
  }
}

// Blocks of threads for whose registers there is room on a multiprocessor. With both halves, wide
// heads need more registers than two blocks have.
template <int kHeadDim, bool kBothHalves, bool kIsStaged>
constexpr int kBlocksAtOnce = kIsStaged && !kBothHalves ? 2 : 0;

// kBothHalves: items have more than 8 rows of queries.
template <int kHeadDim, bool kBothHalves, bool kHasTrees = false, bool kIsStaged = false>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce<kHeadDim, kBothHalves, kIsStaged>)
    DecodeAttentionKernel(DecodeAttentionParams p) {
  using Shape = DecodeShape<kHeadDim>;
  constexpr int kParts = kRingParts<kHeadDim, kIsStaged>;
  extern __shared__ __align__(128) char stages[];
  using Ring = KvRing<NumStages(kStageBytes<kHeadDim, kIsStaged>), kStageBytes<kHeadDim, kIsStaged>,
                      kWarps, kParts>;
  __shared__ typename Ring::Barriers barriers;
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  LaunchNext();
  // The plan was uploaded before the first kernel of the step. Blocks without work need not wait
  // for the previous kernel, because at least one block always has work and waits.
  const DecodeItem item = p.items[blockIdx.x];
  if (item.first_tile == item.last_tile) return;
  Ring ring(stages, barriers);
  __shared__ SharedTree<kHasTrees> tree;
  const auto rows = RowsOf<kHasTrees>(p, item, tree);
  const VisibleBlocks blocks = rows.Blocks();
  ring.Start(p, item, blocks);

  uint32_t q[2][2 * Shape::kSteps] = {};
#pragma unroll
  for (int half = 0; half < (kBothHalves ? 2 : 1); ++half) {
    if (g + 8 * half >= rows.count) continue;
    const bf16* row = rows.Query(g + 8 * half, kHeadDim);
    LoadRow<kHeadDim>(q[half], t, [&](int column) { return row + column; });
  }
  // With up to 8 rows, P x V of wide heads is computed transposed, in half of the registers: values
  // are operand a.
  constexpr bool kTransposes = kIsStaged && !kBothHalves;
  constexpr int kKeysAtOnce = kIsStaged ? 1 : 2;  // of the two rows of keys of a thread
  float out[kTransposes ? kHeadDim / 16 : kHeadDim / 8][4] = {};
  float row_max[2] = {kNegativeInfinity, kNegativeInfinity}, row_sum[2] = {};
  const int end[2] = {rows.End(g), rows.End(g + 8)};  // of the tokens that a row sees
  const unsigned gap[2] = {rows.Gap(g), rows.Gap(g + 8)};

#pragma unroll 1
  for (int i = 0; warp < kWarps && i < blocks.count(); ++i) {
    char* tile = ring.Wait(kParts * i);
    const int first_token = blocks[i] * kBlockTokens;
    if constexpr (kHasTrees) rows.template Gather<kHeadDim, false>(tile, first_token);
    float scores[2][4] = {};
#pragma unroll
    for (int first = 0; first < 2; first += kKeysAtOnce) {
      uint32_t keys[kKeysAtOnce][2 * Shape::kSteps];
#pragma unroll
      for (int j = 0; j < kKeysAtOnce; ++j) {
        const int token = kWarpTokens * warp + 4 * (g / 2) + 2 * (first + j) + g % 2;
        LoadRow<kHeadDim>(keys[j], t,
                          [&](int column) { return tile + KeyOffset<kHeadDim>(token, column); });
      }
#pragma unroll
      for (int j = 0; j < kKeysAtOnce; ++j) {
#pragma unroll
        for (int s = 0; s < Shape::kSteps; ++s) {
          MatrixMultiplyAdd(scores[first + j], q[0][2 * s], q[1][2 * s], q[0][2 * s + 1],
                            q[1][2 * s + 1], keys[j][2 * s], keys[j][2 * s + 1]);
        }
      }
    }
    if constexpr (kParts == 2) ring.Release(2 * i);
#pragma unroll
    for (int half = 0; half < (kBothHalves ? 2 : 1); ++half) {
      float run_max = row_max[half];
      [[maybe_unused]] uint32_t seen = ~0u;
      if constexpr (kHasTrees) seen = rows.Seen(g + 8 * half, first_token + kWarpTokens * warp);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          float& score = scores[j][2 * half + b];
          score *= p.scale;
          if (p.soft_cap > 0.0f) score = SoftCapped(score, p.soft_cap);
          const int token = first_token + kWarpTokens * warp + 4 * t + 2 * j + b;
          if (token >= end[half] || static_cast<unsigned>(token - p.num_sinks) < gap[half])
            score = kNegativeInfinity;
          if constexpr (kHasTrees) {
            if ((seen >> (token - first_token - kWarpTokens * warp) & 1) == 0)
              score = kNegativeInfinity;
          }
          run_max = fmaxf(run_max, score);
        }
      }
      run_max = fmaxf(run_max, __shfl_xor_sync(0xffffffffu, run_max, 1));
      run_max = fmaxf(run_max, __shfl_xor_sync(0xffffffffu, run_max, 2));
      const float base = run_max == kNegativeInfinity ? 0.0f : run_max;
      const float correction = __expf(row_max[half] - base);
      row_max[half] = run_max;
      row_sum[half] *= correction;
      if constexpr (kTransposes) {
        const float first = __shfl_sync(0xffffffffu, correction, 8 * t),
                    second = __shfl_sync(0xffffffffu, correction, 8 * t + 4);
#pragma unroll
        for (float(&sums)[4] : out)
          sums[0] *= first, sums[1] *= second, sums[2] *= first, sums[3] *= second;
      } else {
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n)
          out[n][2 * half] *= correction, out[n][2 * half + 1] *= correction;
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          float& score = scores[j][2 * half + b];
          score = __expf(score - base);
          row_sum[half] += score;
        }
      }
    }
    uint32_t weights[2][2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      weights[0][j] = PackBf16(scores[j][0], scores[j][1]);
      weights[1][j] = kBothHalves ? PackBf16(scores[j][2], scores[j][3]) : 0;
    }
    char* values_tile = kParts == 2 ? ring.Wait(2 * i + 1) : tile + TileBytes(kHeadDim);
    if (const int left = item.length - first_token;
        left < kWarpTokens * (warp + 1)) {  // the context ends in or before the warp's tokens
      ClearValues<kHeadDim, kWarpTokens>(values_tile, kWarpTokens * warp, left, threadIdx.x % 32,
                                         32);
      __syncwarp();
    }
    const auto values = [&](int n) {
      return *reinterpret_cast<const uint2*>(
          values_tile + ValueOffset<kHeadDim>(kWarpTokens * warp + 4 * t, 8 * n + g));
    };
    if constexpr (kTransposes) {
#pragma unroll
      for (int n = 0; n < kHeadDim / 16; ++n) {
        const uint2 low = values(2 * n), high = values(2 * n + 1);
        MatrixMultiplyAdd(out[n], low.x, high.x, low.y, high.y, weights[0][0], weights[0][1]);
      }
    } else {
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
        const uint2 pair = values(n);
        MatrixMultiplyAdd(out[n], weights[0][0], weights[1][0], weights[0][1], weights[1][1],
                          pair.x, pair.y);
      }
    }
    ring.Release(kParts * i + kParts - 1);
  }

  if constexpr (kTransposes) {
    FinishItemOfFewRows<kHeadDim>(rows, stages, out, row_max[0], row_sum[0]);
  } else {
    FinishItem<kHeadDim, kBothHalves>(rows, stages, out, row_max, row_sum);
  }
}

template <int kHeadDim>
void LaunchFor(const DecodeAttentionParams& p, cudaStream_t stream) {
  const int group = p.num_heads / p.num_kv_heads;
  const dim3 grid(p.num_items, p.num_kv_heads, (group + kRows - 1) / kRows);
  const bool both_halves = group > 8 || p.has_chains;
  const auto launch = [&](auto kernel, int ring_bytes) {
    const int shared_bytes = std::max(ring_bytes, PartialsBytes(kHeadDim));
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    Launch(kernel, grid, kThreads, shared_bytes, stream, p);
  };
  if (p.tree_roots != nullptr) {
    return launch(DecodeAttentionKernel<kHeadDim, true, true>, kRingBytes<kHeadDim, false>);
  }
  if constexpr (kRingParts < kHeadDim, true >> 1) {
    if (p.stages_values) {
      return both_halves ? launch(DecodeAttentionKernel<kHeadDim, true, false, true>,
                                  kRingBytes<kHeadDim, true>)
                         : launch(DecodeAttentionKernel<kHeadDim, false, false, true>,
                                  kRingBytes<kHeadDim, true>);
    }
  }
  both_halves ? launch(DecodeAttentionKernel<kHeadDim, true>, kRingBytes<kHeadDim, false>)
              : launch(DecodeAttentionKernel<kHeadDim, false>, kRingBytes<kHeadDim, false>);
}

}  // namespace

void DecodeAttention(const DecodeAttentionParams& params, cudaStream_t stream) {
  if (params.format != CacheFormat::kBf16) return DecodeAttentionQuantized(params, stream);
  ForHeadDim(params.head_dim, [&](auto head_dim) { LaunchFor<head_dim.value>(params, stream); });
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
