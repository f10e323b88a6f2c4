// A KV block of a quantized cache in a fused decode step. As in decode_attention_quantized.cu codes
// are converted to fp16 in registers, the scales of keys are applied to the scores and those of
// values to the softmax weights, and a warp has its sums in units of the largest value scale so
// far, to keep these weights within the range of fp16.
//
// Lane = 4 g + t. Scores: column g of mma j (of 2) is token 8 j + g. Values: column g of mma n (of
// head_dim / 8) is column g * head_dim / 8 + n of the head, so that a thread reads contiguous bytes
// of a token, without conflicts of banks. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/step/decode_step_tile.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

// The key and the value of a new token in the cache's format. Each lane of a warp has four columns
// of both.
class QuantizedToken {
 public:
  // All lanes of the warp call it. Those behind the last column of the head pass zeros.
  __device__ QuantizedToken(const float (&key)[4], const float (&value)[4], CacheFormat format) {
    float rounded[4];  // as the product of the separate kernels
#pragma unroll
    for (int i = 0; i < 4; ++i) rounded[i] = __bfloat162float(__float2bfloat16(value[i]));
    key_ = Quantize(key, format, key_scale_);
    value_ = Quantize(rounded, format, value_scale_);
  }
  // `head`: of a block, in shared or global memory.
  template <int kHeadDim>
  __device__ __forceinline__ void Store(int token, int column, char* head) const {
    if (column >= kHeadDim) return;
    *reinterpret_cast<uint32_t*>(head + QuantizedKeyOffset<kHeadDim>(token, column)) = key_;
    *reinterpret_cast<uint32_t*>(head + QuantizedTileBytes(kHeadDim) +
                                 QuantizedValueOffset<kHeadDim>(token, column)) = value_;
    if (column > 0) return;
    auto* scales = reinterpret_cast<float*>(head + QuantizedScalesOffset(kHeadDim)) + token;
    scales[0] = key_scale_, scales[kBlockTokens] = value_scale_;
  }

 private:
  __device__ static uint32_t Quantize(const float (&values)[4], CacheFormat format, float& scale) {
    float max_magnitude = 0.0f;
#pragma unroll
    for (const float value : values) max_magnitude = fmaxf(max_magnitude, fabsf(value));
    // Floats that are not negative are ordered as their bits.
    max_magnitude = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(max_magnitude)));
    scale = max_magnitude / MaxCode(format);
    return Encode4(values, scale > 0.0f ? 1.0f / scale : 0.0f, format);
  }

  uint32_t key_, value_;
  float key_scale_, value_scale_;
};

// Multiplies queries with the key of token 8 j + g of a warp.
template <int kHeadDim, CacheFormat kFormat>
__device__ __forceinline__ void ScoreQuantizedKey(const char* keys, int token,
                                                  const uint32_t (&q)[2][kHeadDim / 8],
                                                  float (&scores)[4]) {
  using Shape = HeadShape<kHeadDim>;
  const int t = threadIdx.x % 4;
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
__device__ __forceinline__ void AddQuantizedValues(const char* values, int first_token,
                                                   const uint32_t (&weights)[2][2],
                                                   AttentionSums<kHeadDim>& sums) {
  using Codes = ValueCodes<kHeadDim>;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
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

// Adds a tile of a quantized cache to the sums. `q` is in fp16.
template <int kHeadDim, CacheFormat kFormat>
__device__ __forceinline__ void AddQuantizedTile(const DecodeStepParams& p, const UnitTile& tile,
                                                 const uint32_t (&q)[2][kHeadDim / 8],
                                                 AttentionSums<kHeadDim>& sums) {
  const int warp_token = static_cast<int>(threadIdx.x) / 32 % kTileWarps * kWarpTokens;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int first_token = tile.index * kBlockTokens + warp_token + 2 * t;
  const auto* scales =
      reinterpret_cast<const float*>(tile.data + QuantizedScalesOffset(kHeadDim)) + warp_token;
  float scores[2][4] = {}, value_scales[2][2], max_value_scale = 0.0f;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    ScoreQuantizedKey<kHeadDim, kFormat>(tile.data, warp_token + 8 * j + g, q, scores[j]);
    const auto of_keys = *reinterpret_cast<const float2*>(scales + 8 * j + 2 * t);
    const auto of_values = *reinterpret_cast<const float2*>(scales + kBlockTokens + 8 * j + 2 * t);
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
  const float unit = fmaxf(sums.unit, max_value_scale);
  const float inverse_unit = unit > 0.0f ? 1.0f / unit : 0.0f;
  const float change = sums.unit * inverse_unit;
  sums.unit = unit;
  ApplySoftmax<kHeadDim, 8>(p, 0, first_token, tile.window, change, scores, sums);
  if (tile.has_second_half)
    ApplySoftmax<kHeadDim, 8>(p, 1, first_token, tile.window, change, scores, sums);
  uint32_t weights[2][2];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const float low = value_scales[j][0] * inverse_unit, high = value_scales[j][1] * inverse_unit;
    weights[0][j] = PackHalf(scores[j][0] * low, scores[j][1] * high);
    weights[1][j] = tile.has_second_half ? PackHalf(scores[j][2] * low, scores[j][3] * high) : 0;
  }
  AddQuantizedValues<kHeadDim, kFormat>(tile.data + QuantizedTileBytes(kHeadDim), warp_token,
                                        weights, sums);
}

// Stores a thread's sums of a half of the rows, in the order of the head's columns.
template <int kHeadDim>
__device__ __forceinline__ void StoreQuantizedSums(int half, const AttentionSums<kHeadDim>& sums,
                                                   float* row) {
  constexpr int kEach = kHeadDim / 8;
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int b = 0; b < 2; ++b) {
#pragma unroll
    for (int n = 0; n < kEach; n += 2) {
      *reinterpret_cast<float2*>(row + kEach * (2 * t + b) + n) = {
          sums.out[n][2 * half + b] * sums.unit, sums.out[n + 1][2 * half + b] * sums.unit};
    }
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
