// Attention of a fused decode step, from the ring. Tiles are copied before this step's keys and
// values are computed. So every unit rotates those keys that its last token sees, and stores keys
// and values in the tile, in the format of the cache. It also stores those of its own tokens in the
// cache. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/step/decode_step_quantized_tile.cuh"
#include "backends/gpu_llm/kernels/step/decode_step_tile.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

constexpr int kMaxGroup = kDecodeStepGroup;
constexpr int kHalfRows = kItemRows / 2;
static_assert(kItemRows == 16 && kMaxGroup <= kHalfRows);

// Stores columns [column, + 4) of a key and a value in a tile of a bf16 cache.
template <int kHeadDim>
__device__ __forceinline__ void StoreToken(const float (&key)[4], const float (&value)[4],
                                           int token, int column, char* tile) {
  *reinterpret_cast<uint2*>(tile + KeyOffset<kHeadDim>(token, column)) = {PackBf16(key[0], key[1]),
                                                                          PackBf16(key[2], key[3])};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    *reinterpret_cast<bf16*>(tile + TileBytes(kHeadDim) +
                             ValueOffset<kHeadDim>(token, column + i)) = __float2bfloat16(value[i]);
  }
}

// Stores a new token's key and value in the tile and, unless `cache_tile` is null, in the cache.
// Called by a warp.
template <int kHeadDim, CacheFormat kCache>
__device__ void AppendToken(const DecodeStepParams& p, const SharedState& shared,
                            const HeadSource& key, const HeadSource& value, int token, char* tile,
                            char* cache_tile) {
  static_assert(kHeadDim <= 128);
  const int column = static_cast<int>(threadIdx.x) % 32 * 4;
  const bool has_columns = column < kHeadDim;
  RotatedColumns<4> key_columns;
  HeadWords<4> value_words;
  SpinUntilReady(p, shared, [&] {
    if (!has_columns) return true;
    key_columns.Load(key, column), value_words.Load(value, column);
    return key_columns.own.is_ready() && key_columns.others.is_ready() && value_words.is_ready();
  });
  float factor = 1.0f;
  if (key.norm != nullptr) {
    float squares = 0.0f;
    if (has_columns) {
      float own[4];
      key_columns.own.Unpack<false>(key, column, own);
      for (const float v : own) squares += v * v;
    }
    factor = rsqrtf(WarpSum(squares) / kHeadDim + p.epsilon);
  }
  float keys[4] = {}, values[4] = {};
  if (has_columns) {
    key_columns.Rotate<false>(key, factor, keys);
    value_words.Unpack<false>(value, column, values);
  }
  if constexpr (kCache != CacheFormat::kBf16) {
    const QuantizedToken quantized(keys, values, kCache);
    quantized.Store<kHeadDim>(token, column, tile);
    if (cache_tile != nullptr) quantized.Store<kHeadDim>(token, column, cache_tile);
  } else if (has_columns) {
    StoreToken<kHeadDim>(keys, values, token, column, tile);
    if (cache_tile != nullptr) StoreToken<kHeadDim>(keys, values, token, column, cache_tile);
  }
  ProxyFence();  // the copy engine fills the slot next
  __syncwarp();
}

// Adds this step's tokens to a tile that four warps share.
template <int kHeadDim, CacheFormat kCache>
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
                                 HeadBytes(kHeadDim, kCache);
    AppendToken<kHeadDim, kCache>(p, shared, queries.Key(position), queries.Value(position),
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

// Combines the warps' sums, stored in `scratch`, and writes the unit's rows, 8 at a time. If
// several units share the context, the last one to finish combines them.
template <int kHeadDim, CacheFormat kCache>
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
      if constexpr (kCache == CacheFormat::kBf16) {
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n) {
          *reinterpret_cast<float2*>(to + 8 * n + 2 * t) = {sums.out[n][2 * half],
                                                            sums.out[n][2 * half + 1]};
        }
      } else {
        StoreQuantizedSums<kHeadDim>(half, sums, to);
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

template <int kHeadDim, CacheFormat kCache>
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
        is_rotated = head.rope_dim == kHeadDim;
        if (is_rotated && has_row) RotateQuery<kHeadDim>(head, p.epsilon, words, q[half]);
      }
      if (!is_rotated && has_row) {
        is_plain ? LoadQuery<kHeadDim, true>(head, p.epsilon, q[half])
                 : LoadQuery<kHeadDim, false>(head, p.epsilon, q[half]);
      }
    }
    if constexpr (kCache != CacheFormat::kBf16) {
#pragma unroll
      for (auto& words : q) {
#pragma unroll
        for (uint32_t& word : words) word = ToHalf(word);
      }
    }
    for (int tile = 0; tile < unit.num_tiles; ++tile) {
      char* at = consumer.Wait<kBlockSlots<kHeadDim>>();
      const int tile_index = unit.first_tile + tile;
      if (tile % 2 == warp / kTileWarps) {
        AppendTokens<kHeadDim, kCache>(p, consumer.shared(), queries, unit, tile_index, at, cache);
        const UnitTile in = {unit, layer.window, has_second_half, tile_index, at};
        if constexpr (kCache == CacheFormat::kBf16) {
          AddTile<kHeadDim>(p, in, q, sums);
        } else {
          AddQuantizedTile<kHeadDim, kCache>(p, in, q, sums);
        }
      }
      if (tile + 1 == unit.num_tiles) {
        FinishUnit<kHeadDim, kCache>(p, exchange, unit, queries, sums, reinterpret_cast<float*>(at),
                                     consumer.shared());
      }
      consumer.Release<kBlockSlots<kHeadDim>>();
    }
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
