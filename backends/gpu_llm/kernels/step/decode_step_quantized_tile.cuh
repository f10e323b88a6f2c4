// A KV block of a quantized cache in a fused decode step. As in decode_attention_quantized.cu codes
// are converted to fp16 in registers, the scales of keys are applied to the scores and those of
// values to the softmax weights, and a warp has its sums in units of the largest value scale so
// far, to keep these weights within the range of fp16.
//
// Lane = 4 g + t. Scores: column g of mma j (of 2) is token 8 j + g. Values: column g of mma n (of
// head_dim / 8) is column g * head_dim / 8 + n of the head, so that a thread reads contiguous bytes
// of a token, without conflicts of banks. Device code only.
#pragma once

#include <type_traits>

#include "backends/gpu_llm/kernels/step/decode_step_tile.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

// The key and the value of a new token in the cache's format. Each lane of a warp holds four of
// every 128 columns of the key and of the value.
template <int kHeadDim>
class QuantizedToken {
 public:
  static constexpr int kParts = (kHeadDim + 127) / 128;

  // All lanes of the warp call it. For columns behind the last of the head they pass zeros.
  __device__ QuantizedToken(const float (&key)[kParts][4], const float (&value)[kParts][4],
                            CacheFormat format) {
    float rounded[kParts][4];  // as the product of the separate kernels
#pragma unroll
    for (int i = 0; i < 4 * kParts; ++i)
      rounded[i / 4][i % 4] = __bfloat162float(__float2bfloat16(value[i / 4][i % 4]));
    Quantize(key, format, key_, key_scale_);
    Quantize(rounded, format, value_, value_scale_);
  }
  // `head`: of a block, in shared or global memory.
  __device__ __forceinline__ void Store(int token, int lane, char* head) const {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int column = 128 * part + 4 * lane;
      if (column >= kHeadDim) return;
      *reinterpret_cast<uint32_t*>(head + QuantizedKeyOffset<kHeadDim>(token, column)) = key_[part];
      *reinterpret_cast<uint32_t*>(head + QuantizedTileBytes(kHeadDim) +
                                   QuantizedValueOffset<kHeadDim>(token, column)) = value_[part];
    }
    if (lane > 0) return;
    auto* scales = reinterpret_cast<float*>(head + QuantizedScalesOffset(kHeadDim)) + token;
    scales[0] = key_scale_, scales[kBlockTokens] = value_scale_;
  }

 private:
  __device__ static void Quantize(const float (&values)[kParts][4], CacheFormat format,
                                  uint32_t (&codes)[kParts], float& scale) {
    float max_magnitude = 0.0f;
#pragma unroll
    for (int i = 0; i < 4 * kParts; ++i)
      max_magnitude = fmaxf(max_magnitude, fabsf(values[i / 4][i % 4]));
    // Floats that are not negative are ordered as their bits.
    max_magnitude = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(max_magnitude)));
    scale = max_magnitude / MaxCode(format);
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
#pragma unroll
    for (int part = 0; part < kParts; ++part) codes[part] = Encode4(values[part], inverse, format);
  }

  uint32_t key_[kParts], value_[kParts];
  float key_scale_, value_scale_;
};

// A thread's columns of a head in the mma steps: 8 of each 32, then 4 of the last 16.
template <int kHeadDim>
struct HeadShape {
  static constexpr int kWide = kHeadDim / 32;
  static constexpr bool kHasRest = kHeadDim % 32 != 0;
  static constexpr int kWords = kHeadDim / 8;  // of 2 columns
};

// A warp's running sums over the tiles of a unit. A thread has the rows g and g + 8.
template <int kHeadDim>
struct QuantizedSums {
  float out[kHeadDim / 8][4] = {};
  float max[2] = {kNegativeInfinity, kNegativeInfinity}, sum[2] = {};
  float unit = 0.0f;  // of `out`
  int end[2];         // the token behind the last that a row sees
};

// Turns the scores of a half of the rows into weights, and scales the sums to a new maximum.
// `scores[j]` are those of tokens first_token + 8 * j and its successor. `change`: of the unit of
// the sums.
template <bool kMayCap, int kHeadDim>
__device__ __forceinline__ void ApplySoftmax(const DecodeStepParams& p, const UnitTile& tile,
                                             int half, int first_token, float change,
                                             float (&scores)[2][4], QuantizedSums<kHeadDim>& sums) {
  const int end = sums.end[half], begin = tile.Begin(end);
  float run_max = sums.max[half];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      float& score = scores[j][2 * half + b];
      score *= p.attention_scale;
      if (kMayCap && p.soft_cap > 0.0f) score = SoftCapped(score, p.soft_cap);
      const int token = first_token + 8 * j + b;
      if (token >= end || token < begin) score = kNegativeInfinity;
      run_max = fmaxf(run_max, score);
    }
  }
  run_max = fmaxf(run_max, __shfl_xor_sync(0xffffffffu, run_max, 1));
  run_max = fmaxf(run_max, __shfl_xor_sync(0xffffffffu, run_max, 2));
  const float base = run_max == kNegativeInfinity ? 0.0f : run_max;
  const float correction = __expf(sums.max[half] - base);
  sums.max[half] = run_max;
  sums.sum[half] *= correction;
  const float rescale = correction * change;
#pragma unroll
  for (int n = 0; n < kHeadDim / 8; ++n)
    sums.out[n][2 * half] *= rescale, sums.out[n][2 * half + 1] *= rescale;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      float& score = scores[j][2 * half + b];
      score = __expf(score - base);
      sums.sum[half] += score;
    }
  }
}

// Multiplies queries with the key of token 8 j + g of a warp.
template <int kHeadDim, CacheFormat kFormat>
__device__ __forceinline__ void ScoreQuantizedKey(const char* keys, int token, int thread,
                                                  const uint32_t (&q)[2][kHeadDim / 8],
                                                  float (&scores)[4]) {
  using Shape = HeadShape<kHeadDim>;
  const int t = thread % 4;
  const auto add = [&](int step, uint32_t codes) {
    HalfMultiplyAdd(scores, q[0][2 * step], q[1][2 * step], q[0][2 * step + 1], q[1][2 * step + 1],
                    Decode2<kFormat>(codes & 0xffffu), Decode2<kFormat>(codes >> 16));
  };
#pragma unroll
  for (int s = 0; s < Shape::kWide; ++s) {
    const uint2 codes =
        *reinterpret_cast<const uint2*>(keys + QuantizedKeyOffset<kHeadDim>(token, 32 * s + 8 * t));
    add(2 * s, codes.x);
    add(2 * s + 1, codes.y);
  }
  if constexpr (Shape::kHasRest) {
    add(2 * Shape::kWide,
        *reinterpret_cast<const uint32_t*>(
            keys + QuantizedKeyOffset<kHeadDim>(token, 32 * Shape::kWide + 4 * t)));
  }
}

// A thread's bytes of the value of a token.
template <int kHeadDim>
struct ValueCodes {
  static constexpr int kBytes = kHeadDim / 8, kWords = (kBytes + 3) / 4;
  uint32_t words[kWords];

  __device__ __forceinline__ void Load(const char* values, int token, int g) {
    const char* from = values + QuantizedValueOffset<kHeadDim>(token, kBytes * g);
    if constexpr (kBytes == 16) {
      const uint4 all = *reinterpret_cast<const uint4*>(from);
      words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
    } else if constexpr (kBytes == 8) {
      const uint2 all = *reinterpret_cast<const uint2*>(from);
      words[0] = all.x, words[1] = all.y;
    } else if constexpr (kBytes % 4 == 0) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) words[i] = reinterpret_cast<const uint32_t*>(from)[i];
    } else {
      static_assert(kBytes == 2);
      words[0] = *reinterpret_cast<const uint16_t*>(from);
    }
  }
};

// Adds the values of a warp's tokens, each times its weight, to the sums.
template <int kHeadDim, CacheFormat kFormat>
__device__ __forceinline__ void AddQuantizedValues(const char* values, int first_token, int thread,
                                                   const uint32_t (&weights)[2][2],
                                                   QuantizedSums<kHeadDim>& sums) {
  using Codes = ValueCodes<kHeadDim>;
  const int lane = thread % 32, g = lane / 4, t = lane % 4;
  Codes codes[4];  // of tokens 2 t, 2 t + 1, 2 t + 8, 2 t + 9
#pragma unroll
  for (int i = 0; i < 4; ++i) codes[i].Load(values, first_token + 2 * t + i / 2 * 8 + i % 2, g);
#pragma unroll
  for (int w = 0; w < Codes::kWords; ++w) {
#pragma unroll
    for (int pair = 0; pair < (Codes::kBytes < 4 ? 1 : 2); ++pair) {
      // Codes of two tokens: bytes of a column, then of the next one.
      const uint32_t order = pair == 0 ? 0x5140 : 0x7362;
      const uint32_t low = __byte_perm(codes[0].words[w], codes[1].words[w], order);
      const uint32_t high = __byte_perm(codes[2].words[w], codes[3].words[w], order);
      HalfMultiplyAdd(sums.out[4 * w + 2 * pair], weights[0][0], weights[1][0], weights[0][1],
                      weights[1][1], Decode2<kFormat>(low & 0xffffu),
                      Decode2<kFormat>(high & 0xffffu));
      HalfMultiplyAdd(sums.out[4 * w + 2 * pair + 1], weights[0][0], weights[1][0], weights[0][1],
                      weights[1][1], Decode2<kFormat>(low >> 16), Decode2<kFormat>(high >> 16));
    }
  }
}

// What Bf16Tiles is for a bf16 cache. Queries are in fp16.
template <int kHeadDim, CacheFormat kFormat, int kHalves, bool kMayCap>
class QuantizedTiles {
 public:
  template <typename Queries>
  __device__ __forceinline__ void LoadQueries(const UnitHeads<kHeadDim>& heads,
                                              const Queries& queries, int thread) {
    thread_ = thread;
    using Shape = HeadShape<kHeadDim>;
    const int lane = thread_ % 32, g = lane / 4, t = lane % 4;
    has_second_half_ = kHalves == 2 && queries.count() > kHalfRows;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int query = g + half * kHalfRows;
      sums_.end[half] = queries.End(min(query, queries.count() - 1));
      if (query >= queries.count()) continue;
      const char* const row = heads.Query(query);
      uint32_t(&q)[Shape::kWords] = q_[half];
#pragma unroll
      for (int s = 0; s < Shape::kWide; ++s) {
        const uint4 words = *reinterpret_cast<const uint4*>(row + 2 * (32 * s + 8 * t));
        q[4 * s] = words.x, q[4 * s + 1] = words.y, q[4 * s + 2] = words.z, q[4 * s + 3] = words.w;
      }
      if constexpr (Shape::kHasRest) {
        const uint2 words = *reinterpret_cast<const uint2*>(row + 2 * (32 * Shape::kWide + 4 * t));
        q[4 * Shape::kWide] = words.x, q[4 * Shape::kWide + 1] = words.y;
      }
    }
  }

  __device__ __forceinline__ void Add(const DecodeStepParams& p, const UnitTile& tile) {
    const int thread = thread_, g = thread % 32 / 4, t = thread % 4;
    const int warp_token = thread / 32 % kTileWarps * kWarpTokens;
    const int first_token = tile.index * kBlockTokens + warp_token + 2 * t;
    const auto* scales =
        reinterpret_cast<const float*>(tile.data + QuantizedScalesOffset(kHeadDim)) + warp_token;
    float scores[2][4] = {}, value_scales[2][2], max_value_scale = 0.0f;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      ScoreQuantizedKey<kHeadDim, kFormat>(tile.data, warp_token + 8 * j + g, thread_, q_,
                                           scores[j]);
      const auto of_keys = *reinterpret_cast<const float2*>(scales + 8 * j + 2 * t);
      const auto of_values =
          *reinterpret_cast<const float2*>(scales + kBlockTokens + 8 * j + 2 * t);
      scores[j][0] *= of_keys.x, scores[j][1] *= of_keys.y;
      scores[j][2] *= of_keys.x, scores[j][3] *= of_keys.y;
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const int token = first_token + 8 * j + b;
        const bool is_visible = token >= tile.unit.first_visible && token < tile.unit.item.length;
        value_scales[j][b] = is_visible ? (b == 0 ? of_values.x : of_values.y) : 0.0f;
        max_value_scale = fmaxf(max_value_scale, value_scales[j][b]);
      }
    }
    max_value_scale = fmaxf(max_value_scale, __shfl_xor_sync(0xffffffffu, max_value_scale, 1));
    max_value_scale = fmaxf(max_value_scale, __shfl_xor_sync(0xffffffffu, max_value_scale, 2));
    const float unit = fmaxf(sums_.unit, max_value_scale);
    const float inverse_unit = unit > 0.0f ? 1.0f / unit : 0.0f;
    const float change = sums_.unit * inverse_unit;
    sums_.unit = unit;
    ApplySoftmax<kMayCap>(p, tile, 0, first_token, change, scores, sums_);
    if (has_second_half_) ApplySoftmax<kMayCap>(p, tile, 1, first_token, change, scores, sums_);
    uint32_t weights[2][2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float low = value_scales[j][0] * inverse_unit, high = value_scales[j][1] * inverse_unit;
      weights[0][j] = PackHalf(scores[j][0] * low, scores[j][1] * high);
      weights[1][j] = has_second_half_ ? PackHalf(scores[j][2] * low, scores[j][3] * high) : 0;
    }
    AddQuantizedValues<kHeadDim, kFormat>(tile.data + QuantizedTileBytes(kHeadDim), warp_token,
                                          thread_, weights, sums_);
  }

  __device__ __forceinline__ void Store(int half, int num_rows, float* to) const {
    constexpr int kEach = kHeadDim / 8;
    const int lane = thread_ % 32, g = lane / 4, t = lane % 4;
    float sum = sums_.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (g >= num_rows) return;
    float* const row = to + g * PartialStride(kHeadDim);
#pragma unroll
    for (int b = 0; b < 2; ++b) {
#pragma unroll
      for (int n = 0; n < kEach; n += 2) {
        *reinterpret_cast<float2*>(row + kEach * (2 * t + b) + n) = {
            sums_.out[n][2 * half + b] * sums_.unit, sums_.out[n + 1][2 * half + b] * sums_.unit};
      }
    }
    if (t == 0) row[kHeadDim] = sums_.max[half], row[kHeadDim + 1] = sum;
  }

 private:
  uint32_t q_[2][HeadShape<kHeadDim>::kWords] = {};
  QuantizedSums<kHeadDim> sums_;
  int thread_;
  bool has_second_half_;
};

// What QuantizedTiles is, for heads wider than 128 columns, whose units have at most 8 queries. As
// in Bf16Tiles, queries are the 8 columns of the mma, because a thread has no room for the sums
// of 16. A warp reads the queries from shared memory for each tile, because its registers do not
// hold them beside the sums.
//
// Scores: row g of operand a is token g of the warp's tokens, and row g + 8 is token g + 8. A
// thread multiplies 16 adjacent columns of every 64. Values: every 128 columns of the head take 8
// products; rows g and g + 8 of product m are columns 16 g + 2 m and 16 g + 2 m + 1 of these 128.
// Keys and values are read 16 bytes of a token at a time, without conflicts of banks.
template <int kHeadDim, CacheFormat kFormat, bool kMayCap>
class WideQuantizedTiles {
  static_assert(kHeadDim % 128 == 0);

 public:
  template <typename Queries>
  __device__ __forceinline__ void LoadQueries(const UnitHeads<kHeadDim>& heads,
                                              const Queries& queries, int thread) {
    thread_ = thread;
    const int lane = thread % 32, g = lane / 4, t = lane % 4;
    // Rows behind the last query hold arbitrary values, which change no result of another query.
    queries_ = heads.Query(g) + 2 * 16 * t;
#pragma unroll
    for (int i = 0; i < 2; ++i) sums_.end[i] = queries.End(min(2 * t + i, queries.count() - 1));
  }

  __device__ __forceinline__ void Add(const DecodeStepParams& p, const UnitTile& tile) {
    const int lane = thread_ % 32, g = lane / 4;
    const int warp_token = thread_ / 32 % kTileWarps * kWarpTokens;
    const int first_token = tile.index * kBlockTokens + warp_token + g;
    float scores[2][2];  // [token][query]; ApplySoftmax() turns them into weights
    Score(tile, warp_token, scores);
    const auto* scales =
        reinterpret_cast<const float*>(tile.data + QuantizedScalesOffset(kHeadDim)) + warp_token +
        g;
    float value_scales[2], max_value_scale = 0.0f;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int token = first_token + 8 * j;
      scores[j][0] *= scales[8 * j], scores[j][1] *= scales[8 * j];
      const bool is_visible = token >= tile.unit.first_visible && token < tile.unit.item.length;
      value_scales[j] = is_visible ? scales[kBlockTokens + 8 * j] : 0.0f;
      max_value_scale = fmaxf(max_value_scale, value_scales[j]);
    }
#pragma unroll
    for (int other = 4; other < 32; other *= 2)
      max_value_scale =
          fmaxf(max_value_scale, __shfl_xor_sync(0xffffffffu, max_value_scale, other));
    const float unit = fmaxf(unit_, max_value_scale);
    const float inverse_unit = unit > 0.0f ? 1.0f / unit : 0.0f;
    sums_.template ApplySoftmax<kMayCap>(p, tile, first_token, unit_ * inverse_unit, scores);
    unit_ = unit;
    uint32_t weights[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float scale = value_scales[j] * inverse_unit;
      weights[j] = TransposeMatrix(PackHalf(scores[j][0] * scale, scores[j][1] * scale));
    }
    AddValues(tile.data + QuantizedTileBytes(kHeadDim), warp_token, weights);
  }

  __device__ __forceinline__ void Store(int /*half*/, int num_rows, float* to) const {
    const int lane = thread_ % 32;
    sums_.Store(
        lane, num_rows, unit_,
        [&](int s, int i) { return s / 8 * 128 + lane / 4 * 16 + s % 8 * 2 + i; }, to);
  }

 private:
  // Multiplies queries with the keys of the warp's tokens: [token][query].
  __device__ __forceinline__ void Score(const UnitTile& tile, int warp_token,
                                        float (&to)[2][2]) const {
    const int lane = thread_ % 32, token = warp_token + lane / 4, column = lane % 4 * 16;
    float scores[2][4] = {};  // two sums, so that products do not wait for each other
#pragma unroll
    for (int s = 0; s < kHeadDim; s += 64) {
      uint4 keys[2], q[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        keys[j] = *reinterpret_cast<const uint4*>(
            tile.data + QuantizedKeyOffset<kHeadDim>(token + 8 * j, s + column));
        q[j] = *reinterpret_cast<const uint4*>(queries_ + 2 * s + 16 * j);
      }
      const auto add = [&](float(&sum)[4], uint32_t first, uint32_t second, uint32_t q0,
                           uint32_t q1) {
        HalfMultiplyAdd(sum, Decode2<kFormat>(first & 0xffffu), Decode2<kFormat>(second & 0xffffu),
                        Decode2<kFormat>(first >> 16), Decode2<kFormat>(second >> 16), q0, q1);
      };
      add(scores[0], keys[0].x, keys[1].x, q[0].x, q[0].y);
      add(scores[1], keys[0].y, keys[1].y, q[0].z, q[0].w);
      add(scores[0], keys[0].z, keys[1].z, q[1].x, q[1].y);
      add(scores[1], keys[0].w, keys[1].w, q[1].z, q[1].w);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) to[j / 2][j % 2] = scores[0][j] + scores[1][j];
  }

  // Adds the values of the warp's tokens, each times its weight, to the sums.
  __device__ __forceinline__ void AddValues(const char* values, int warp_token,
                                            const uint32_t (&weights)[2]) {
    const int lane = thread_ % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int part = 0; part < kHeadDim / 128; ++part) {
      uint32_t codes[4][4];  // of tokens 2 t, 2 t + 1, 2 t + 8, 2 t + 9
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = warp_token + 2 * t + i / 2 * 8 + i % 2;
        const auto all = *reinterpret_cast<const uint4*>(
            values + QuantizedValueOffset<kHeadDim>(token, 128 * part + 16 * g));
        codes[i][0] = all.x, codes[i][1] = all.y, codes[i][2] = all.z, codes[i][3] = all.w;
      }
#pragma unroll
      for (int m = 0; m < 8; ++m) {
        // Codes of two tokens: the two bytes of one column, then those of the next column.
        const uint32_t order = m % 2 == 0 ? 0x5140 : 0x7362;
        const uint32_t low = __byte_perm(codes[0][m / 2], codes[1][m / 2], order);
        const uint32_t high = __byte_perm(codes[2][m / 2], codes[3][m / 2], order);
        HalfMultiplyAdd(sums_.out[8 * part + m], Decode2<kFormat>(low & 0xffffu),
                        Decode2<kFormat>(low >> 16), Decode2<kFormat>(high & 0xffffu),
                        Decode2<kFormat>(high >> 16), weights[0], weights[1]);
      }
    }
  }

  QuerySums<kHeadDim> sums_;
  float unit_ = 0.0f;    // the sums of values are multiples of it
  const char* queries_;  // the 16 columns of query g that this lane multiplies first
  int thread_;
};

template <int kHeadDim, CacheFormat kCache, int kHalves, bool kMayCap>
using QuantizedTilesOf =
    std::conditional_t<(kHeadDim > kWideHeadDim), WideQuantizedTiles<kHeadDim, kCache, kMayCap>,
                       QuantizedTiles<kHeadDim, kCache, kHalves, kMayCap>>;
template <int kHeadDim, CacheFormat kCache, int kHalves, bool kMayCap>
using UnitTiles =
    std::conditional_t<kCache == CacheFormat::kBf16, Bf16Tiles<kHeadDim, kHalves, kMayCap>,
                       QuantizedTilesOf<kHeadDim, kCache, kHalves, kMayCap>>;

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
