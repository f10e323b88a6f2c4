// Decode attention over quantized caches (one byte an element), structured like
// decode_attention.cu. Codes are converted to fp16 in registers. The scales are applied where this
// costs least: those of keys to the scores, those of values to the softmax weights. To keep these
// weights within the range of fp16, a warp has its sums in units of the largest value scale so far.
//
// Lane = 4 g + t. Scores: column g of mma j (of 2) is token 8 j + g. A thread reads 16, 8 or 4
// contiguous bytes of a key, four for each step of the mma. ldmatrix transposes the values and
// returns pairs of columns, which are split over two mma: one of the even and one of the odd
// columns.
//
// Share of an H200's memory bandwidth, contexts of about 700 tokens: fp8 67 to 69 % with 256
// sequences (114 us) and 46 to 49 % with 64, int8 61 to 62 % with 256. bf16, which converts
// nothing, reaches 90.
#include "backends/gpu_llm/kernels/attention/cache_quantization.cuh"
#include "backends/gpu_llm/kernels/attention/decode_attention.cuh"
#include "backends/gpu_llm/kernels/attention/head_dims.h"
#include "backends/gpu_llm/kernels/attention/tree_rows.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/device/soft_cap.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

using namespace decode_attention;

template <int kHeadDim>
struct QuantizedDecodeShape {
  static constexpr int kSteps = kHeadDim / 16;  // mma steps along head_dim
  static constexpr int kStageBytes = static_cast<int>(HeadBytes(kHeadDim, CacheFormat::kFp8));
  static constexpr int kFit =
      68 * 1024 / kStageBytes;  // three blocks of threads on a multiprocessor
  static constexpr int kStages = kFit < 2 ? 2 : kFit > 8 ? 8 : kFit;
};

// First of the four columns that a thread has in a step.
template <int kHeadDim>
__device__ __forceinline__ int ColumnOf(int step, int t) {
  const int first = step / 4 * 64;
  if (kHeadDim - first >= 64) return first + 16 * t + step % 4 * 4;
  if (kHeadDim % 64 >= 32 && step % 4 < 2) return first + 8 * t + step % 4 * 4;
  return first + kHeadDim % 64 / 32 * 32 + 4 * t;
}

// Loads the bytes of a key at the columns of ColumnOf(), step by step.
template <int kHeadDim>
__device__ __forceinline__ void LoadKey(uint32_t (&to)[kHeadDim / 16], const char* tile, int token,
                                        int t) {
#pragma unroll
  for (int s = 0; s < kHeadDim / 64 * 4; s += 4) {
    const uint4 packed = *reinterpret_cast<const uint4*>(
        tile + QuantizedKeyOffset<kHeadDim>(token, 16 * s + 16 * t));
    to[s] = packed.x, to[s + 1] = packed.y, to[s + 2] = packed.z, to[s + 3] = packed.w;
  }
  constexpr int kDone = kHeadDim / 64 * 4;
  if constexpr (kHeadDim % 64 >= 32) {
    const uint2 packed = *reinterpret_cast<const uint2*>(
        tile + QuantizedKeyOffset<kHeadDim>(token, 16 * kDone + 8 * t));
    to[kDone] = packed.x, to[kDone + 1] = packed.y;
  }
  if constexpr (kHeadDim % 32 != 0) {
    constexpr int kLast = kHeadDim / 16 - 1;
    to[kLast] = *reinterpret_cast<const uint32_t*>(
        tile + QuantizedKeyOffset<kHeadDim>(token, 16 * kLast + 4 * t));
  }
}

__device__ __forceinline__ void LoadTransposed(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

template <int kHeadDim, bool kBothHalves, CacheFormat kFormat, bool kHasTrees = false>
__global__ void __launch_bounds__(kThreads, kHeadDim <= 128 ? (kHasTrees ? 2 : 3) : 1)
    DecodeAttentionQuantizedKernel(DecodeAttentionParams p) {
  using Shape = QuantizedDecodeShape<kHeadDim>;
  extern __shared__ __align__(128) char stages[];
  using Ring = KvRing<Shape::kStages, Shape::kStageBytes, kWarps>;
  __shared__ typename Ring::Barriers barriers;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  LaunchNext();
  const DecodeItem item = p.items[blockIdx.x];
  if (item.first_tile == item.last_tile) return;
  Ring ring(stages, barriers);
  __shared__ SharedTree<kHasTrees> tree;
  const auto rows = RowsOf<kHasTrees>(p, item, tree);
  const int first_visible = rows.FirstVisible();
  const VisibleBlocks blocks = rows.Blocks();
  ring.Start(p, item, blocks);

  uint32_t q[2][2 * Shape::kSteps] = {};
#pragma unroll
  for (int half = 0; half < (kBothHalves ? 2 : 1); ++half) {
    if (g + 8 * half >= rows.count) continue;
    const bf16* row = rows.Query(g + 8 * half, kHeadDim);
#pragma unroll
    for (int s = 0; s < Shape::kSteps; ++s) {
      const uint2 four = *reinterpret_cast<const uint2*>(row + ColumnOf<kHeadDim>(s, t));
      q[half][2 * s] = ToHalf(four.x), q[half][2 * s + 1] = ToHalf(four.y);
    }
  }
  float out[kHeadDim / 8][4] = {};
  float row_max[2] = {kNegativeInfinity, kNegativeInfinity}, row_sum[2] = {};
  const int end[2] = {rows.End(g), rows.End(g + 8)};  // of the tokens that a row sees
  const unsigned gap[2] = {rows.Gap(g), rows.Gap(g + 8)};
  float unit = 0.0f;  // of `out`

  for (int i = 0; warp < kWarps && i < blocks.count(); ++i) {
    char* tile = ring.Wait(i);
    const int first_token = blocks[i] * kBlockTokens;
    if constexpr (kHasTrees) rows.template Gather<kHeadDim, true>(tile, first_token);
    const float* scales = reinterpret_cast<const float*>(tile + QuantizedScalesOffset(kHeadDim)) +
                          kWarpTokens * warp + 2 * t;
    float scores[2][4] = {};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      uint32_t key[Shape::kSteps];
      LoadKey<kHeadDim>(key, tile, kWarpTokens * warp + 8 * j + g, t);
      float more[4] = {};  // a second accumulator, so that consecutive mma are independent
#pragma unroll
      for (int s = 0; s < Shape::kSteps; ++s) {
        HalfMultiplyAdd(s % 2 == 0 ? scores[j] : more, q[0][2 * s], q[1][2 * s], q[0][2 * s + 1],
                        q[1][2 * s + 1], Decode2<kFormat>(key[s] & 0xffffu),
                        Decode2<kFormat>(key[s] >> 16));
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) scores[j][k] += more[k];
    }
    float value_scales[2][2];
    float max_value_scale = 0.0f;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float2 key_scales = *reinterpret_cast<const float2*>(scales + 8 * j);
      const float2 tile_value_scales =
          *reinterpret_cast<const float2*>(scales + kBlockTokens + 8 * j);
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const int token = first_token + kWarpTokens * warp + 8 * j + 2 * t + b;
        const bool is_visible =
            token < item.length && (token >= first_visible || token < p.num_sinks);
        value_scales[j][b] =
            is_visible ? (b == 0 ? tile_value_scales.x : tile_value_scales.y) : 0.0f;
        max_value_scale = fmaxf(max_value_scale, value_scales[j][b]);
        const float key_scale = (b == 0 ? key_scales.x : key_scales.y) * p.scale;
        scores[j][b] *= key_scale, scores[j][2 + b] *= key_scale;
      }
    }
    max_value_scale = fmaxf(max_value_scale, __shfl_xor_sync(0xffffffffu, max_value_scale, 1));
    max_value_scale = fmaxf(max_value_scale, __shfl_xor_sync(0xffffffffu, max_value_scale, 2));
    const float new_unit = fmaxf(unit, max_value_scale);
    const float inverse_unit = new_unit > 0.0f ? 1.0f / new_unit : 0.0f;
    const float change = unit * inverse_unit;
    unit = new_unit;
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
          if (p.soft_cap > 0.0f) score = SoftCapped(score, p.soft_cap);
          const int token = first_token + kWarpTokens * warp + 8 * j + 2 * t + b;
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
      const float rescale = correction * change;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n)
        out[n][2 * half] *= rescale, out[n][2 * half + 1] *= rescale;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          float& score = scores[j][2 * half + b];
          score = __expf(score - base);
          row_sum[half] += score;
          score *= value_scales[j][b] * inverse_unit;
        }
      }
    }
    uint32_t weights[2][2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      weights[0][j] = PackHalf(scores[j][0], scores[j][1]);
      weights[1][j] = kBothHalves ? PackHalf(scores[j][2], scores[j][3]) : 0;
    }
    const uint32_t values = SharedAddress(tile + QuantizedTileBytes(kHeadDim));
#pragma unroll
    for (int c = 0; c < kHeadDim / 16; c += 2) {  // two groups of 16 columns
      uint32_t pairs[4];
      const int columns = min(c + lane / 16, kHeadDim / 16 - 1) * 16;
      LoadTransposed(
          pairs, values + QuantizedValueOffset<kHeadDim>(kWarpTokens * warp + lane % 16, columns));
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (c + k >= kHeadDim / 16) break;
        // Bytes of the even column, then of the odd one.
        const uint32_t first = __byte_perm(pairs[2 * k], 0, 0x3120);
        const uint32_t second = __byte_perm(pairs[2 * k + 1], 0, 0x3120);
        HalfMultiplyAdd(out[2 * (c + k)], weights[0][0], weights[1][0], weights[0][1],
                        weights[1][1], Decode2<kFormat>(first & 0xffffu),
                        Decode2<kFormat>(second & 0xffffu));
        HalfMultiplyAdd(out[2 * (c + k) + 1], weights[0][0], weights[1][0], weights[0][1],
                        weights[1][1], Decode2<kFormat>(first >> 16),
                        Decode2<kFormat>(second >> 16));
      }
    }
    ring.Release(i);
  }
#pragma unroll
  for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
    for (float& value : out[n]) value *= unit;
  }
  FinishItem<kHeadDim, kBothHalves, true>(rows, stages, out, row_max, row_sum);
}

template <int kHeadDim>
void LaunchFor(const DecodeAttentionParams& p, cudaStream_t stream) {
  const int group = p.num_heads / p.num_kv_heads;
  const dim3 grid(p.num_items, p.num_kv_heads, (group + kRows - 1) / kRows);
  const bool both_halves = group > 8 || p.has_chains;
  constexpr int kRing =
      QuantizedDecodeShape<kHeadDim>::kStages * QuantizedDecodeShape<kHeadDim>::kStageBytes;
  static_assert(kRing >= PartialsBytes(kHeadDim));
  const auto launch = [&](auto kernel) {
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kRing);
    Launch(kernel, grid, kThreads, kRing, stream, p);
  };
  if (p.tree_roots != nullptr) {
    p.format == CacheFormat::kFp8
        ? launch(DecodeAttentionQuantizedKernel<kHeadDim, true, CacheFormat::kFp8, true>)
        : launch(DecodeAttentionQuantizedKernel<kHeadDim, true, CacheFormat::kInt8, true>);
  } else if (p.format == CacheFormat::kFp8) {
    both_halves ? launch(DecodeAttentionQuantizedKernel<kHeadDim, true, CacheFormat::kFp8>)
                : launch(DecodeAttentionQuantizedKernel<kHeadDim, false, CacheFormat::kFp8>);
  } else {
    both_halves ? launch(DecodeAttentionQuantizedKernel<kHeadDim, true, CacheFormat::kInt8>)
                : launch(DecodeAttentionQuantizedKernel<kHeadDim, false, CacheFormat::kInt8>);
  }
}

}  // namespace

void DecodeAttentionQuantized(const DecodeAttentionParams& params, cudaStream_t stream) {
  ForHeadDim(params.head_dim, [&](auto head_dim) { LaunchFor<head_dim.value>(params, stream); });
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
