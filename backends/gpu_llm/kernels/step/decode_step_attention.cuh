// Attention of a decode step: as decode_attention.cu computes it, from the ring. What rope.cu does
// beforehand is done on the way: queries are rotated as they are read; the unit with the newest
// token rotates its key, and puts it and its value into the cache and into the tile that was copied
// before they were there. Device code alone.
#pragma once

#include <type_traits>

#include "backends/gpu_llm/kernels/attention/attention_parts.cuh"
#include "backends/gpu_llm/kernels/step/decode_step_ring.cuh"

namespace nereid::gpu::decode_step {

constexpr int kTileWarps = 4;  // that share a KV block; the other four take the next one
constexpr int kWarpTokens = kBlockTokens / kTileWarps;
constexpr int kMaxGroup = 8;  // query heads of a key/value head

// What one layer's attention reads of a head before its rotation.
struct HeadSource {
  const bf16* row;      // of the head's columns
  const bf16* bias;     // of the same; null: none
  const bf16* norm;     // [head_dim]; null: none
  const float2* turns;  // of the token's position, [rope_dim / 2]
  int rope_dim;
};

// kPlain: heads have neither bias nor norm.
template <int kCount, bool kPlain>
__device__ __forceinline__ void LoadValues(const HeadSource& head, int column,
                                           float (&values)[kCount]) {
  static_assert(kCount == 4 || kCount == 8);
  uint32_t words[kCount / 2], bias[kCount / 2];
  const auto load = [](auto packed, uint32_t(&to)[kCount / 2]) {
    to[0] = packed.x, to[1] = packed.y;
    if constexpr (kCount == 8) to[2] = packed.z, to[3] = packed.w;
  };
  if constexpr (kCount == 8) {
    load(LoadWords4(head.row + column), words);
  } else {
    load(LoadWords2(head.row + column), words);
  }
  const bool has_bias = !kPlain && head.bias != nullptr;
  using Packed = std::conditional_t<kCount == 8, uint4, uint2>;
  if (has_bias) load(__ldg(reinterpret_cast<const Packed*>(head.bias + column)), bias);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = i % 2 == 0 ? LowBf16(words[i / 2]) : HighBf16(words[i / 2]);
    if (has_bias) values[i] += i % 2 == 0 ? LowBf16(bias[i / 2]) : HighBf16(bias[i / 2]);
  }
}

// Columns [column, + kCount) of a head, rotated; `factor`: of its norm. Loads do not wait for each
// other.
template <int kCount, bool kPlain>
__device__ __forceinline__ void LoadRotated(const HeadSource& head, int column, float factor,
                                            float (&values)[kCount]) {
  const int half = head.rope_dim / 2;
  const bool turns_at_all = column < head.rope_dim, is_first = column < half;
  const int partner = turns_at_all ? (is_first ? column + half : column - half) : column;
  float others[kCount];
  LoadValues<kCount, kPlain>(head, column, values);
  LoadValues<kCount, kPlain>(head, partner, others);
  float4 turns[kCount / 2];
  const auto* from =
      reinterpret_cast<const float4*>(head.turns + (turns_at_all ? min(column, partner) : 0));
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) turns[i] = __ldg(from + i);
  if (!kPlain && head.norm != nullptr) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] *= factor * __bfloat162float(head.norm[column + i]);
      others[i] *= factor * __bfloat162float(head.norm[partner + i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float cosine = i % 2 == 0 ? turns[i / 2].x : turns[i / 2].z;
    const float sine = i % 2 == 0 ? turns[i / 2].y : turns[i / 2].w;
    const float turned = values[i] * cosine + (is_first ? -others[i] : others[i]) * sine;
    if (turns_at_all) values[i] = turned;
  }
}

// Of columns a thread has in steps of the matrix product: 8 of each 32, then 4 of a last 16.
template <int kHeadDim>
struct HeadShape {
  static constexpr int kWide = kHeadDim / 32;
  static constexpr bool kHasRest = kHeadDim % 32 != 0;
  static constexpr int kWords = kHeadDim / 8;  // of 2 columns
};

// A thread's pieces of a query head, 8 columns of each 32.
template <int kHeadDim>
struct HeadWords {
  static constexpr int kPieces = (kHeadDim + 31) / 32;
  uint4 pieces[kPieces];
};

// Until all of a head is there; a whole warp.
template <int kHeadDim>
__device__ __forceinline__ HeadWords<kHeadDim> WaitForHead(const DecodeStepParams& p,
                                                           const Shared& shared,
                                                           const HeadSource& head) {
  HeadWords<kHeadDim> words;
  LookUntilThere(p, shared, [&] {
    bool is_there = true;
#pragma unroll
    for (int i = 0; i < words.kPieces; ++i)
      words.pieces[i] = LoadWords4(head.row + (32 * i + 8 * (threadIdx.x % 4)) % kHeadDim);
#pragma unroll
    for (const uint4& piece : words.pieces) is_there &= IsThere(piece);
    return is_there;
  });
  return words;
}

// What LoadQuery does, of a head without bias and norm that is rotated as a whole: each piece turns
// with another one of the same thread.
template <int kHeadDim>
__device__ __forceinline__ void RotateQuery(const HeadSource& head,
                                            const HeadWords<kHeadDim>& words,
                                            uint32_t (&q)[HeadShape<kHeadDim>::kWords]) {
  constexpr int kHalf = kHeadDim / 64;  // pieces
  static_assert(kHeadDim % 64 == 0);
#pragma unroll
  for (int s = 0; s < kHalf; ++s) {
    float low[8], high[8], turned_low[8], turned_high[8];
    Unpack8(words.pieces[s], low);
    Unpack8(words.pieces[s + kHalf], high);
    const auto* turns =
        reinterpret_cast<const float4*>(head.turns + 32 * s + 8 * (threadIdx.x % 4));
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 pair = __ldg(turns + i / 2);
      const float cosine = i % 2 == 0 ? pair.x : pair.z, sine = i % 2 == 0 ? pair.y : pair.w;
      turned_low[i] = low[i] * cosine - high[i] * sine;
      turned_high[i] = high[i] * cosine + low[i] * sine;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      q[4 * s + i] = PackBf16(turned_low[2 * i], turned_low[2 * i + 1]);
      q[4 * (s + kHalf) + i] = PackBf16(turned_high[2 * i], turned_high[2 * i + 1]);
    }
  }
}

// A query head, rotated, as an operand of the matrix product.
template <int kHeadDim, bool kPlain>
__device__ __forceinline__ void LoadQuery(const HeadSource& head, float epsilon,
                                          uint32_t (&q)[HeadShape<kHeadDim>::kWords]) {
  using Shape = HeadShape<kHeadDim>;
  const int t = threadIdx.x % 4;
  float factor = 1.0f;
  if (!kPlain && head.norm != nullptr) {
    float squares = 0.0f;
    for (int column = 4 * t; column < kHeadDim; column += 16) {
      float values[4];
      LoadValues<4, kPlain>(head, column, values);
      for (const float value : values) squares += value * value;
    }
    const uint32_t four = 0xfu << (threadIdx.x % 32 / 4 * 4);
    squares += __shfl_xor_sync(four, squares, 1);
    squares += __shfl_xor_sync(four, squares, 2);
    factor = rsqrtf(squares / kHeadDim + epsilon);
  }
#pragma unroll
  for (int s = 0; s < Shape::kWide; ++s) {
    float values[8];
    LoadRotated<8, kPlain>(head, 32 * s + 8 * t, factor, values);
#pragma unroll
    for (int i = 0; i < 4; ++i) q[4 * s + i] = PackBf16(values[2 * i], values[2 * i + 1]);
  }
  if constexpr (Shape::kHasRest) {
    float values[4];
    LoadRotated<4, kPlain>(head, 32 * Shape::kWide + 4 * t, factor, values);
    q[4 * Shape::kWide] = PackBf16(values[0], values[1]);
    q[4 * Shape::kWide + 1] = PackBf16(values[2], values[3]);
  }
}

template <int kHeadDim>
__device__ __forceinline__ void LoadKey(const char* tile, int token,
                                        uint32_t (&key)[HeadShape<kHeadDim>::kWords]) {
  using Shape = HeadShape<kHeadDim>;
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int s = 0; s < Shape::kWide; ++s) {
    const uint4 packed =
        *reinterpret_cast<const uint4*>(tile + KeyOffset<kHeadDim>(token, 32 * s + 8 * t));
    key[4 * s] = packed.x, key[4 * s + 1] = packed.y, key[4 * s + 2] = packed.z,
            key[4 * s + 3] = packed.w;
  }
  if constexpr (Shape::kHasRest) {
    const uint2 packed = *reinterpret_cast<const uint2*>(
        tile + KeyOffset<kHeadDim>(token, 32 * Shape::kWide + 4 * t));
    key[4 * Shape::kWide] = packed.x, key[4 * Shape::kWide + 1] = packed.y;
  }
}

// A warp puts the newest token's key and value where they belong, in both places.
template <int kHeadDim>
__device__ void PutNewest(const DecodeStepParams& p, const Shared& shared, const HeadSource& key,
                          const HeadSource& value, int token, char* tile, char* cache_tile) {
  const int lane = threadIdx.x % 32;
  LookUntilThere(p, shared, [&] {
    bool is_there = true;
    for (int column = 4 * lane; column < kHeadDim; column += 128)
      is_there &= IsThere(LoadWords2(key.row + column)) && IsThere(LoadWords2(value.row + column));
    return is_there;
  });
  float factor = 1.0f;
  if (key.norm != nullptr) {
    float squares = 0.0f;
    for (int column = 4 * lane; column < kHeadDim; column += 128) {
      float values[4];
      LoadValues<4, false>(key, column, values);
      for (const float v : values) squares += v * v;
    }
    factor = rsqrtf(WarpSum(squares) / kHeadDim + p.epsilon);
  }
  for (int column = 4 * lane; column < kHeadDim; column += 128) {
    float keys[4], values[4];
    LoadRotated<4, false>(key, column, factor, keys);
    LoadValues<4, false>(value, column, values);
    const uint2 packed = {PackBf16(keys[0], keys[1]), PackBf16(keys[2], keys[3])};
    const int at = KeyOffset<kHeadDim>(token, column);
    *reinterpret_cast<uint2*>(tile + at) = packed;
    *reinterpret_cast<uint2*>(cache_tile + at) = packed;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t to = TileBytes(kHeadDim) + ValueOffset<kHeadDim>(token, column + i);
      *reinterpret_cast<bf16*>(tile + to) = __float2bfloat16(values[i]);
      *reinterpret_cast<bf16*>(cache_tile + to) = __float2bfloat16(values[i]);
    }
  }
  ProxyFence();  // the copy engine fills the slot next
  __syncwarp();
}

// Two columns of a head's attention.
template <int kHeadDim>
__device__ __forceinline__ void PutAttention(const LayerExchange& exchange, int row, int head,
                                             int column, const PartSum (&all)[2]) {
  StoreWord(exchange.attention + row * exchange.stride + head * kHeadDim + column,
            PackBf16(all[0].value / all[0].sum, all[1].value / all[1].sum));
}

// The parts of a context that several units have, added up in order.
template <int kHeadDim>
__device__ void CombineUnits(const DecodeStepParams& p, const LayerExchange& exchange,
                             const DecodeItem& item, int first_head, int group) {
  for (int i = threadIdx.x; i < group * kHeadDim / 2; i += 32 * kWarps) {
    const int head = first_head + 2 * i / kHeadDim, column = 2 * i % kHeadDim;
    PartSum all[2];
#pragma unroll
    for (int j = 0; j < 2; ++j)
      all[j] = SumItemParts<kHeadDim>(p.partials, item, p.num_heads, head, column + j);
    PutAttention<kHeadDim>(exchange, item.row, head, column, all);
  }
}

// A warp's running sums over the tiles of a unit; rows are query heads, of which a thread has g.
template <int kHeadDim>
struct AttentionSums {
  float out[kHeadDim / 8][4] = {};  // [..][2] and [3]: of rows that there are not
  float max = kNegativeInfinity, sum = 0.0f;
};

template <int kHeadDim>
__device__ __forceinline__ void AttendTile(const DecodeStepParams& p, const AttentionUnit& unit,
                                           int tile_index, char* tile,
                                           const uint32_t (&q)[HeadShape<kHeadDim>::kWords],
                                           AttentionSums<kHeadDim>& sums) {
  const int warp = threadIdx.x / 32 % kTileWarps, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float scores[2][4] = {};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    uint32_t key[HeadShape<kHeadDim>::kWords];
    LoadKey<kHeadDim>(tile, kWarpTokens * warp + 4 * (g / 2) + 2 * j + g % 2, key);
#pragma unroll
    for (int s = 0; s < kHeadDim / 16; ++s)
      MatrixMultiplyAdd(scores[j], q[2 * s], 0, q[2 * s + 1], 0, key[2 * s], key[2 * s + 1]);
  }
  float run_max = sums.max;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      float& score = scores[j][b];
      score *= p.attention_scale;
      const int token = tile_index * kBlockTokens + kWarpTokens * warp + 4 * t + 2 * j + b;
      if (token >= unit.item.length || token < unit.first_visible) score = kNegativeInfinity;
      run_max = fmaxf(run_max, score);
    }
  }
  run_max = fmaxf(run_max, __shfl_xor_sync(0xffffffffu, run_max, 1));
  run_max = fmaxf(run_max, __shfl_xor_sync(0xffffffffu, run_max, 2));
  const float base = run_max == kNegativeInfinity ? 0.0f : run_max;
  const float keep = __expf(sums.max - base);
  sums.max = run_max;
  sums.sum *= keep;
#pragma unroll
  for (int n = 0; n < kHeadDim / 8; ++n) sums.out[n][0] *= keep, sums.out[n][1] *= keep;
  uint32_t weights[2];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      scores[j][b] = __expf(scores[j][b] - base);
      sums.sum += scores[j][b];
    }
    weights[j] = PackBf16(scores[j][0], scores[j][1]);
  }
  // Of the tile's tokens, those that are seen; where the warp has others, their values count 0
  // times.
  const int begin = unit.first_visible - tile_index * kBlockTokens;
  const int end = unit.item.length - tile_index * kBlockTokens;
  if (begin > kWarpTokens * warp || end < kWarpTokens * (warp + 1)) {
    ClearValues<kHeadDim, kWarpTokens>(tile + TileBytes(kHeadDim), kWarpTokens * warp, begin, end,
                                       threadIdx.x % 32, 32);
    __syncwarp();
  }
#pragma unroll
  for (int n = 0; n < kHeadDim / 8; ++n) {
    const uint2 values = *reinterpret_cast<const uint2*>(
        tile + TileBytes(kHeadDim) + ValueOffset<kHeadDim>(kWarpTokens * warp + 4 * t, 8 * n + g));
    MatrixMultiplyAdd(sums.out[n], weights[0], 0, weights[1], 0, values.x, values.y);
  }
}

// The warps' sums, side by side in `scratch`, to the unit's row, or to where the last unit of the
// context to end finds all.
template <int kHeadDim>
__device__ void FinishUnit(const DecodeStepParams& p, const LayerExchange& exchange,
                           const AttentionUnit& unit, AttentionSums<kHeadDim>& sums, float* scratch,
                           Shared& shared) {
  constexpr int kStride = PartStride(kHeadDim);
  static_assert(4 * kWarps * kMaxGroup * kStride <= kSlotBytes);
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int group = p.num_heads / p.num_kv_heads, first_head = unit.kv_head * group;
  const DecodeItem& item = unit.item;
  sums.sum += __shfl_xor_sync(0xffffffffu, sums.sum, 1);
  sums.sum += __shfl_xor_sync(0xffffffffu, sums.sum, 2);
  SyncConsumers();  // the scratch was a tile
  if (g < group) {
    float* to = scratch + (warp * kMaxGroup + g) * kStride;
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
      *reinterpret_cast<float2*>(to + 8 * n + 2 * t) = {sums.out[n][0], sums.out[n][1]};
    }
    if (t == 0) to[kHeadDim] = sums.max, to[kHeadDim + 1] = sums.sum;
  }
  SyncConsumers();
  for (int i = threadIdx.x; i < group * kHeadDim / 2; i += 32 * kWarps) {
    const int row = 2 * i / kHeadDim, head = first_head + row, column = 2 * i % kHeadDim;
    PartSum all[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      all[j] =
          SumWarpParts<kHeadDim, kWarps>(scratch + row * kStride, kMaxGroup * kStride, column + j);
      if (item.num_items > 1)
        StoreItemPart<kHeadDim>(p.partials, unit.index, p.num_heads, head, column + j, all[j]);
    }
    if (item.num_items == 1) PutAttention<kHeadDim>(exchange, item.row, head, column, all);
  }
  ProxyFence();  // as in PutNewest
  if (item.num_items == 1) return;
  __threadfence();
  SyncConsumers();
  if (threadIdx.x == 0) {
    int32_t* ticket = p.tickets + item.sequence * p.num_heads + first_head;
    shared.is_last = atomicAdd(ticket, 1) == item.num_items - 1;
    if (shared.is_last) *ticket = 0;
    __threadfence();
  }
  SyncConsumers();
  if (shared.is_last) CombineUnits<kHeadDim>(p, exchange, item, first_head, group);
}

template <int kHeadDim>
__device__ void Attend(const DecodeStepParams& p, int layer_index, Consumer& consumer) {
  const DecodeStepLayer& layer = p.layers[layer_index];
  const LayerExchange exchange = ExchangeOf(p, consumer.shared().set, layer_index);
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
  const int group = p.num_heads / p.num_kv_heads;
  char* cache = static_cast<char*>(p.cache) + layer_index * p.cache_layer_bytes;
  const bool is_plain = layer.qkv_bias == nullptr && layer.q_norm == nullptr;
  for (int i = 0; HasUnit(p, i); ++i) {
    const AttentionUnit unit = UnitOf(p, consumer.shared(), i, layer.window);
    if (unit.num_tiles == 0) continue;
    const DecodeItem& item = unit.item;
    const auto source = [&](int head, const bf16* norm) {
      const int64_t at = int64_t{head} * kHeadDim;
      return HeadSource{exchange.qkv + item.row * exchange.stride + at,
                        layer.qkv_bias != nullptr ? layer.qkv_bias + at : nullptr, norm,
                        layer.cos_sin + int64_t{unit.position} * (layer.rope_dim / 2),
                        layer.rope_dim};
    };
    uint32_t q[HeadShape<kHeadDim>::kWords] = {};
    const HeadSource head = source(unit.kv_head * group + min(g, group - 1), layer.q_norm);
    const HeadWords<kHeadDim> words = WaitForHead<kHeadDim>(p, consumer.shared(), head);
    bool is_rotated = false;
    if constexpr (kHeadDim % 64 == 0) {
      is_rotated = is_plain && head.rope_dim == kHeadDim;
      if (is_rotated && g < group) RotateQuery<kHeadDim>(head, words, q);
    }
    if (!is_rotated && g < group) {
      is_plain ? LoadQuery<kHeadDim, true>(head, p.epsilon, q)
               : LoadQuery<kHeadDim, false>(head, p.epsilon, q);
    }
    const int newest = item.length - 1;
    AttentionSums<kHeadDim> sums;
    for (int tile = 0; tile < unit.num_tiles; ++tile) {
      char* at = consumer.Wait();
      const int tile_index = unit.first_tile + tile;
      if (tile % 2 == warp / kTileWarps) {
        const int token = newest % kBlockTokens;
        if (tile_index == newest / kBlockTokens && token / kWarpTokens == warp % kTileWarps) {
          const int slot = unit.slot;
          PutNewest<kHeadDim>(
              p, consumer.shared(), source(p.num_heads + unit.kv_head, layer.k_norm),
              source(p.num_heads + p.num_kv_heads + unit.kv_head, nullptr), token, at,
              cache + (int64_t{slot / kBlockTokens} * p.num_kv_heads + unit.kv_head) *
                          HeadBytes(kHeadDim));
        }
        AttendTile<kHeadDim>(p, unit, tile_index, at, q, sums);
      }
      if (tile + 1 < unit.num_tiles) {
        consumer.Release();
      } else {
        FinishUnit<kHeadDim>(p, exchange, unit, sums, reinterpret_cast<float*>(at),
                             consumer.shared());
        consumer.Release();
      }
    }
  }
}

}  // namespace nereid::gpu::decode_step
