// Attention of a fused decode step: computed as in decode_attention.cu, from the ring. The work of
// rope.cu is fused: queries are rotated when they are read. Tiles are copied before this step's
// keys and values are computed. So every unit rotates those keys that its last token sees, and
// stores keys and values in the tile. It also stores those of its own tokens in the cache. Device
// code only.
#pragma once

#include <type_traits>

#include "backends/gpu_llm/kernels/attention/partial_attention.cuh"
#include "backends/gpu_llm/kernels/step/decode_step_ring.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

constexpr int kTileWarps = 4;  // warps that share a KV block; the other four handle the next block
constexpr int kWarpTokens = kBlockTokens / kTileWarps;
constexpr int kMaxGroup = kDecodeStepGroup;
constexpr int kHalfRows = kItemRows / 2;
static_assert(kItemRows == 16 && kMaxGroup <= kHalfRows);

// Inputs of a head before its rotation.
struct HeadSource {
  const bf16* row;        // the head's columns
  const bf16* bias;       // for the same columns; null: none
  const bf16* norm;       // [head_dim]; null: none
  const float2* cos_sin;  // for the token's position, [rope_dim / 2]
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

// Loads columns [column, + kCount) of a head, rotated. `factor`: 1 / RMS of the head's norm. All
// loads are independent.
template <int kCount, bool kPlain>
__device__ __forceinline__ void LoadRotated(const HeadSource& head, int column, float factor,
                                            float (&values)[kCount]) {
  const int half = head.rope_dim / 2;
  const bool is_rotated_column = column < head.rope_dim, is_first = column < half;
  const int partner = is_rotated_column ? (is_first ? column + half : column - half) : column;
  float others[kCount];
  LoadValues<kCount, kPlain>(head, column, values);
  LoadValues<kCount, kPlain>(head, partner, others);
  float4 cos_sin[kCount / 2];
  const auto* from = reinterpret_cast<const float4*>(
      head.cos_sin + (is_rotated_column ? min(column, partner) : 0));
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) cos_sin[i] = __ldg(from + i);
  if (!kPlain && head.norm != nullptr) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] *= factor * __bfloat162float(head.norm[column + i]);
      others[i] *= factor * __bfloat162float(head.norm[partner + i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float cosine = i % 2 == 0 ? cos_sin[i / 2].x : cos_sin[i / 2].z;
    const float sine = i % 2 == 0 ? cos_sin[i / 2].y : cos_sin[i / 2].w;
    const float turned = values[i] * cosine + (is_first ? -others[i] : others[i]) * sine;
    if (is_rotated_column) values[i] = turned;
  }
}

// Columns of a thread in the mma steps: 8 of each 32, then 4 of the last 16.
template <int kHeadDim>
struct HeadShape {
  static constexpr int kWide = kHeadDim / 32;
  static constexpr bool kHasRest = kHeadDim % 32 != 0;
  static constexpr int kWords = kHeadDim / 8;  // of 2 columns
};

// A thread's columns of a query head, 8 of each 32.
template <int kHeadDim>
struct QueryFragments {
  static constexpr int kFragments = (kHeadDim + 31) / 32;
  uint4 fragments[kFragments];
};

// Spins until the whole head is ready; called by a whole warp.
template <int kHeadDim>
__device__ __forceinline__ QueryFragments<kHeadDim> WaitForHead(const DecodeStepParams& p,
                                                                const SharedState& shared,
                                                                const HeadSource& head) {
  QueryFragments<kHeadDim> words;
  SpinUntilReady(p, shared, [&] {
    bool is_ready = true;
#pragma unroll
    for (int i = 0; i < words.kFragments; ++i)
      words.fragments[i] = LoadWords4(head.row + (32 * i + 8 * (threadIdx.x % 4)) % kHeadDim);
#pragma unroll
    for (const uint4& fragment : words.fragments) is_ready &= IsReady(fragment);
    return is_ready;
  });
  return words;
}

// LoadQuery() for a head that has no bias and no norm and is rotated completely: each fragment
// rotates with another one of the same thread.
template <int kHeadDim>
__device__ __forceinline__ void RotateQuery(const HeadSource& head,
                                            const QueryFragments<kHeadDim>& words,
                                            uint32_t (&q)[HeadShape<kHeadDim>::kWords]) {
  constexpr int kHalf = kHeadDim / 64;  // in fragments
  static_assert(kHeadDim % 64 == 0);
#pragma unroll
  for (int s = 0; s < kHalf; ++s) {
    float low[8], high[8], turned_low[8], turned_high[8];
    Unpack8(words.fragments[s], low);
    Unpack8(words.fragments[s + kHalf], high);
    const auto* cos_sin =
        reinterpret_cast<const float4*>(head.cos_sin + 32 * s + 8 * (threadIdx.x % 4));
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 pair = __ldg(cos_sin + i / 2);
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

// Loads a query head, rotated, as an mma operand.
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

// Stores a new token's key and value in the tile and, unless `cache_tile` is null, in the cache.
// Called by a warp.
template <int kHeadDim>
__device__ void AppendToken(const DecodeStepParams& p, const SharedState& shared,
                            const HeadSource& key, const HeadSource& value, int token, char* tile,
                            char* cache_tile) {
  const int lane = threadIdx.x % 32;
  SpinUntilReady(p, shared, [&] {
    bool is_ready = true;
    for (int column = 4 * lane; column < kHeadDim; column += 128)
      is_ready &= IsReady(LoadWords2(key.row + column)) && IsReady(LoadWords2(value.row + column));
    return is_ready;
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
    if (cache_tile != nullptr) *reinterpret_cast<uint2*>(cache_tile + at) = packed;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t to = TileBytes(kHeadDim) + ValueOffset<kHeadDim>(token, column + i);
      *reinterpret_cast<bf16*>(tile + to) = __float2bfloat16(values[i]);
      if (cache_tile != nullptr)
        *reinterpret_cast<bf16*>(cache_tile + to) = __float2bfloat16(values[i]);
    }
  }
  ProxyFence();  // the copy engine fills the slot next
  __syncwarp();
}

// The queries of a unit: row r is query head r % group of token r / group of the item.
class UnitQueries {
 public:
  __device__ UnitQueries(const DecodeStepParams& p, const DecodeStepLayer& layer, const bf16* qkv,
                         int stride, int head_dim, const AttentionUnit& unit)
      : p_(p),
        layer_(layer),
        qkv_(qkv),
        stride_(stride),
        head_dim_(head_dim),
        unit_(unit),
        group_(p.num_heads / p.num_kv_heads),
        count_(unit.item.num_tokens * group_) {}

  __device__ __forceinline__ int count() const { return count_; }
  __device__ __forceinline__ int Token(int row) const {
    return unit_.item.num_tokens == 1 ? 0 : row / group_;
  }
  __device__ __forceinline__ int Head(int row) const {
    return unit_.kv_head * group_ + row - Token(row) * group_;
  }
  // The token behind the last that a row sees.
  __device__ __forceinline__ int End(int row) const {
    return unit_.item.length - unit_.item.num_tokens + 1 + Token(row);
  }
  // Position of the first query.
  __device__ __forceinline__ int First() const { return unit_.item.length - unit_.item.num_tokens; }
  __device__ __forceinline__ HeadSource Query(int row) const {
    return Source(unit_.item.row + Token(row), Head(row), layer_.q_norm);
  }
  // Of the token at a position of the context that this step computes.
  __device__ __forceinline__ HeadSource Key(int position) const {
    return Source(RowOf(position), p_.num_heads + unit_.kv_head, layer_.k_norm);
  }
  __device__ __forceinline__ HeadSource Value(int position) const {
    return Source(RowOf(position), p_.num_heads + p_.num_kv_heads + unit_.kv_head, nullptr);
  }
  __device__ __forceinline__ int CacheSlot(int position) const {
    const int row = RowOf(position);
    return row == unit_.item.row ? unit_.slot : p_.cache_slots[row];
  }

 private:
  __device__ __forceinline__ int RowOf(int position) const {
    return unit_.item.row + position - First();
  }
  __device__ __forceinline__ HeadSource Source(int row, int head, const bf16* norm) const {
    const int64_t at = int64_t{head} * head_dim_;
    const int position = row == unit_.item.row ? unit_.position : p_.positions[row];
    return HeadSource{qkv_ + row * stride_ + at,
                      layer_.qkv_bias != nullptr ? layer_.qkv_bias + at : nullptr, norm,
                      layer_.cos_sin + int64_t{position} * (layer_.rope_dim / 2), layer_.rope_dim};
  }

  const DecodeStepParams& p_;
  const DecodeStepLayer& layer_;
  const bf16* qkv_;
  const int stride_, head_dim_;
  const AttentionUnit& unit_;
  const int group_, count_;
};

// Adds this step's tokens to a tile that four warps share.
template <int kHeadDim>
__device__ __forceinline__ void AppendTokens(const DecodeStepParams& p, const SharedState& shared,
                                             const UnitQueries& queries, const AttentionUnit& unit,
                                             int tile_index, char* tile, char* cache) {
  const DecodeItem& item = unit.item;
  const int first = max(item.first_new, tile_index * kBlockTokens);
  const int end = min(item.length, (tile_index + 1) * kBlockTokens);
  if (first >= end) return;
  const int warp = threadIdx.x / 32 % kTileWarps;
  const auto append = [&](int position) {
    const int slot = queries.CacheSlot(position);
    char* to = position < queries.First()
                   ? nullptr  // another unit stores it
                   : cache + (int64_t{slot / kBlockTokens} * p.num_kv_heads + unit.kv_head) *
                                 HeadBytes(kHeadDim);
    AppendToken<kHeadDim>(p, shared, queries.Key(position), queries.Value(position),
                          position % kBlockTokens, tile, to);
  };
  if (item.length - item.first_new == 1) {  // only the warp that reads the token waits for it
    if (first % kBlockTokens / kWarpTokens == warp) append(first);
    return;
  }
  for (int position = first + warp; position < end; position += kTileWarps) append(position);
  asm volatile("bar.sync %0, %1;" ::"r"(2 + static_cast<int>(threadIdx.x) / (32 * kTileWarps)),
               "n"(32 * kTileWarps)
               : "memory");
}

// Stores two columns of a head's attention output.
template <int kHeadDim>
__device__ __forceinline__ void StoreAttention(const LayerExchange& exchange, int row, int head,
                                               int column, const PartialAttention (&all)[2]) {
  StoreWord(exchange.attention + row * exchange.stride + head * kHeadDim + column,
            PackBf16(all[0].value / all[0].sum, all[1].value / all[1].sum));
}

// Combines the partial results of a context that several units share, in order.
template <int kHeadDim>
__device__ void CombineUnits(const DecodeStepParams& p, const LayerExchange& exchange,
                             const DecodeItem& item, const UnitQueries& queries) {
  const int64_t stride = int64_t{p.item_tokens} * p.num_heads * PartialFloats(kHeadDim);
  for (int i = threadIdx.x; i < queries.count() * kHeadDim / 2; i += 32 * kWarps) {
    const int row = 2 * i / kHeadDim, column = 2 * i % kHeadDim;
    const int token = queries.Token(row), head = queries.Head(row);
    const float* from = p.partials + PartialOffset(kHeadDim, p.num_heads, p.item_tokens,
                                                   item.first_item, token, head);
    PartialAttention all[2];
#pragma unroll
    for (int j = 0; j < 2; ++j)
      all[j] = CombineItemPartials<kHeadDim>(from, stride, item.num_items, column + j);
    StoreAttention<kHeadDim>(exchange, item.row + token, head, column, all);
  }
}

// A warp's running sums over the tiles of a unit. A thread has the rows g and g + 8.
template <int kHeadDim>
struct AttentionSums {
  float out[kHeadDim / 8][4] = {};
  float max[2] = {kNegativeInfinity, kNegativeInfinity}, sum[2] = {};
  int end[2];  // the token behind the last that a row sees
};

// Turns the scores of a half of the rows into weights, and scales the sums to a new maximum.
template <int kHeadDim>
__device__ __forceinline__ void ApplySoftmax(const DecodeStepParams& p, int half, int first_token,
                                             int window, float (&scores)[2][4],
                                             AttentionSums<kHeadDim>& sums) {
  const int end = sums.end[half], begin = window > 0 ? max(0, end - window) : 0;
  float run_max = sums.max[half];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      float& score = scores[j][2 * half + b];
      score *= p.attention_scale;
      const int token = first_token + 2 * j + b;
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
#pragma unroll
  for (int n = 0; n < kHeadDim / 8; ++n)
    sums.out[n][2 * half] *= correction, sums.out[n][2 * half + 1] *= correction;
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

template <int kHeadDim>
__device__ __forceinline__ void ComputeAttentionTile(
    const DecodeStepParams& p, const AttentionUnit& unit, int window, bool has_second_half,
    int tile_index, char* tile, const uint32_t (&q)[2][HeadShape<kHeadDim>::kWords],
    AttentionSums<kHeadDim>& sums) {
  const int warp = threadIdx.x / 32 % kTileWarps, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float scores[2][4] = {};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    uint32_t key[HeadShape<kHeadDim>::kWords];
    LoadKey<kHeadDim>(tile, kWarpTokens * warp + 4 * (g / 2) + 2 * j + g % 2, key);
#pragma unroll
    for (int s = 0; s < kHeadDim / 16; ++s) {
      MatrixMultiplyAdd(scores[j], q[0][2 * s], q[1][2 * s], q[0][2 * s + 1], q[1][2 * s + 1],
                        key[2 * s], key[2 * s + 1]);
    }
  }
  const int first_token = tile_index * kBlockTokens + kWarpTokens * warp + 4 * t;
  uint32_t weights[2][2] = {};
  ApplySoftmax(p, 0, first_token, window, scores, sums);
  if (has_second_half) ApplySoftmax(p, 1, first_token, window, scores, sums);
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    weights[0][j] = PackBf16(scores[j][0], scores[j][1]);
    weights[1][j] = has_second_half ? PackBf16(scores[j][2], scores[j][3]) : 0;
  }
  // Visible tokens of the tile. If the warp has others, their values are cleared.
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
    MatrixMultiplyAdd(sums.out[n], weights[0][0], weights[1][0], weights[0][1], weights[1][1],
                      values.x, values.y);
  }
}

// Combines the warps' sums, stored in `scratch`, and writes the unit's rows, 8 at a time. If
// several units share the context, the last one to finish combines them.
template <int kHeadDim>
__device__ void FinishUnit(const DecodeStepParams& p, const LayerExchange& exchange,
                           const AttentionUnit& unit, const UnitQueries& queries,
                           AttentionSums<kHeadDim>& sums, float* scratch, SharedState& shared) {
  constexpr int kStride = PartialStride(kHeadDim);
  static_assert(4 * kWarps * kHalfRows * kStride <= kBlockSlots<kHeadDim> * kSlotBytes);
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int group = p.num_heads / p.num_kv_heads;
  const DecodeItem& item = unit.item;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int num_rows = min(kHalfRows, queries.count() - half * kHalfRows);
    if (num_rows <= 0) break;
    sums.sum[half] += __shfl_xor_sync(0xffffffffu, sums.sum[half], 1);
    sums.sum[half] += __shfl_xor_sync(0xffffffffu, sums.sum[half], 2);
    SyncConsumers();  // the scratch memory was a tile, or has the other half
    if (g < num_rows) {
      float* to = scratch + (warp * kHalfRows + g) * kStride;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
        *reinterpret_cast<float2*>(to + 8 * n + 2 * t) = {sums.out[n][2 * half],
                                                          sums.out[n][2 * half + 1]};
      }
      if (t == 0) to[kHeadDim] = sums.max[half], to[kHeadDim + 1] = sums.sum[half];
    }
    SyncConsumers();
    for (int i = threadIdx.x; i < num_rows * kHeadDim / 2; i += 32 * kWarps) {
      const int row = 2 * i / kHeadDim, column = 2 * i % kHeadDim;
      const int token = queries.Token(half * kHalfRows + row);
      const int head = queries.Head(half * kHalfRows + row);
      PartialAttention all[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        all[j] = CombineWarpPartials<kHeadDim, kWarps>(scratch + row * kStride, kHalfRows * kStride,
                                                       column + j);
        if (item.num_items > 1) {
          StoreItemPartial<kHeadDim>(
              p.partials +
                  PartialOffset(kHeadDim, p.num_heads, p.item_tokens, unit.index, token, head),
              column + j, all[j]);
        }
      }
      if (item.num_items == 1)
        StoreAttention<kHeadDim>(exchange, item.row + token, head, column, all);
    }
  }
  ProxyFence();  // as in AppendToken
  if (item.num_items == 1) return;
  __threadfence();
  SyncConsumers();
  if (threadIdx.x == 0) {
    int32_t* ticket = p.tickets + item.sequence * p.num_heads + unit.kv_head * group;
    shared.is_last = atomicAdd(ticket, 1) == item.num_items - 1;
    if (shared.is_last) *ticket = 0;
    __threadfence();
  }
  SyncConsumers();
  if (shared.is_last) CombineUnits<kHeadDim>(p, exchange, item, queries);
}

template <int kHeadDim>
__device__ void RunAttention(const DecodeStepParams& p, int layer_index, Consumer& consumer) {
  const DecodeStepLayer& layer = p.layers[layer_index];
  const LayerExchange exchange = ExchangeOf(p, consumer.shared().set, layer_index);
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
  char* cache = static_cast<char*>(p.cache) + layer_index * p.cache_layer_bytes;
  const bool is_plain = layer.qkv_bias == nullptr && layer.q_norm == nullptr;
  for (int i = 0; HasUnit(p, i); ++i) {
    const AttentionUnit unit = UnitOf(p, consumer.shared(), i, layer.window);
    if (unit.num_tiles == 0) continue;
    const UnitQueries queries(p, layer, exchange.qkv, exchange.stride, kHeadDim, unit);
    const bool has_second_half = queries.count() > kHalfRows;
    uint32_t q[2][HeadShape<kHeadDim>::kWords] = {};
    AttentionSums<kHeadDim> sums;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sums.end[half] = 0;
      if (half == 1 && !has_second_half) break;
      const int row = min(g + half * kHalfRows, queries.count() - 1);
      const bool has_row = g + half * kHalfRows < queries.count();
      const HeadSource head = queries.Query(row);
      sums.end[half] = queries.End(row);
      const QueryFragments<kHeadDim> words = WaitForHead<kHeadDim>(p, consumer.shared(), head);
      bool is_rotated = false;
      if constexpr (kHeadDim % 64 == 0) {
        is_rotated = is_plain && head.rope_dim == kHeadDim;
        if (is_rotated && has_row) RotateQuery<kHeadDim>(head, words, q[half]);
      }
      if (!is_rotated && has_row) {
        is_plain ? LoadQuery<kHeadDim, true>(head, p.epsilon, q[half])
                 : LoadQuery<kHeadDim, false>(head, p.epsilon, q[half]);
      }
    }
    for (int tile = 0; tile < unit.num_tiles; ++tile) {
      char* at = consumer.Wait<kBlockSlots<kHeadDim>>();
      const int tile_index = unit.first_tile + tile;
      if (tile % 2 == warp / kTileWarps) {
        AppendTokens<kHeadDim>(p, consumer.shared(), queries, unit, tile_index, at, cache);
        ComputeAttentionTile<kHeadDim>(p, unit, layer.window, has_second_half, tile_index, at, q,
                                       sums);
      }
      if (tile + 1 == unit.num_tiles) {
        FinishUnit<kHeadDim>(p, exchange, unit, queries, sums, reinterpret_cast<float*>(at),
                             consumer.shared());
      }
      consumer.Release<kBlockSlots<kHeadDim>>();
    }
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
