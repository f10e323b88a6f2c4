// Attention of a fused decode step, from the ring. Tiles are copied before this step's keys and
// values are computed. So every unit rotates those keys that its last token sees, and stores keys
// and values in the tile, in the format of the cache. It also stores those of its own tokens in the
// cache. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/step/decode_step_quantized_tile.cuh"
#include "backends/gpu_llm/kernels/step/decode_step_tile.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

static_assert(kDecodeStepUnitHeads <= kHalfRows);

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
__device__ __forceinline__ void AppendToken(const float* key, const float* value, int token,
                                            int lane, char* tile, char* cache_tile) {
  constexpr int kParts = (kHeadDim + 127) / 128;
  float keys[kParts][4] = {}, values[kParts][4] = {};
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int column = 128 * part + 4 * lane;
    if (column >= kHeadDim) continue;
    *reinterpret_cast<float4*>(keys[part]) = *reinterpret_cast<const float4*>(key + column);
    *reinterpret_cast<float4*>(values[part]) = *reinterpret_cast<const float4*>(value + column);
    if constexpr (kCache == CacheFormat::kBf16) {
      StoreToken<kHeadDim>(keys[part], values[part], token, column, tile);
      if (cache_tile != nullptr)
        StoreToken<kHeadDim>(keys[part], values[part], token, column, cache_tile);
    }
  }
  if constexpr (kCache != CacheFormat::kBf16) {
    // Lanes without columns take part as well, because a warp quantizes together.
    const QuantizedToken<kHeadDim> quantized(keys, values, kCache);
    quantized.Store(token, lane, tile);
    if (cache_tile != nullptr) quantized.Store(token, lane, cache_tile);
  }
  __syncwarp();
}

// Adds this step's tokens to a tile that four warps share.
template <int kHeadDim, CacheFormat kCache, bool kOneRow>
__device__ __forceinline__ void AppendTokens(const DecodeStepParams& p,
                                             const UnitHeads<kHeadDim>& heads,
                                             const UnitQueries<kOneRow>& queries,
                                             const AttentionUnit& unit, int tile_index, int thread,
                                             char* tile, char* cache) {
  const DecodeItem& item = unit.item;
  const int first = max(item.first_new, tile_index * kBlockTokens);
  const int end = min(item.length, (tile_index + 1) * kBlockTokens);
  if (first >= end) return;
  const int warp = thread / 32 % kTileWarps;
  const auto append = [&](int position) {
    const int slot = queries.CacheSlot(position);
    char* to = position < queries.First() || !unit.stores_tokens
                   ? nullptr  // another unit stores it
                   : cache + (int64_t{slot / kBlockTokens} * p.num_kv_heads + unit.kv_head) *
                                 HeadBytes(kHeadDim, kCache);
    const int i = position - queries.first_new();
    AppendToken<kHeadDim, kCache>(heads.Key(i), heads.Value(i), position % kBlockTokens,
                                  thread % 32, tile, to);
  };
  // Only the warp that reads the token needs it. FinishUnit() follows, with a fence.
  if (item.length - item.first_new == 1) {
    if (first % kBlockTokens / kWarpTokens == warp) append(first);
    return;
  }
  for (int position = first + warp; position < end; position += kTileWarps) append(position);
  ProxyFence();  // the copy engine fills the slot next
  asm volatile("bar.sync %0, %1;" ::"r"(2 + thread / (32 * kTileWarps)), "n"(32 * kTileWarps)
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
template <int kHeadDim, bool kOneRow>
__device__ void CombineUnits(const DecodeStepParams& p, const LayerExchange& exchange,
                             const DecodeItem& item, const UnitQueries<kOneRow>& queries,
                             int thread) {
  const int64_t stride = int64_t{p.item_tokens} * p.num_heads * PartialFloats(kHeadDim);
  for (int i = thread; i < queries.count() * kHeadDim / 2; i += 32 * kWarps) {
    const int row = 2 * i / kHeadDim, column = 2 * i % kHeadDim;
    const int token = queries.Token(row), head = queries.Head(row);
    const float* from = p.partials + PartialOffset(kHeadDim, p.num_heads, p.item_tokens,
                                                   item.first_item, token, head);
    PartialAttention all[2];
    CombineItemPartials<kHeadDim>(from, stride, item.num_items, column, all);
    StoreAttention<kHeadDim>(exchange, item.row + token, head, column, all);
  }
}

// Combines the warps' sums, stored in `scratch`, and writes the unit's rows, 8 at a time. If
// several units share the context, the last one to finish combines them.
template <int kHeadDim, int kHalves, bool kOneRow, typename Tiles>
__device__ void FinishUnit(const DecodeStepParams& p, const LayerExchange& exchange,
                           const AttentionUnit& unit, const UnitQueries<kOneRow>& queries,
                           const Tiles& tiles, int thread, float* scratch, SharedState& shared) {
  constexpr int kStride = PartialStride(kHeadDim);
  static_assert(4 * kWarps * kHalfRows * kStride <= kBlockSlots<kHeadDim> * kSlotBytes);
  const int warp = thread / 32;
  const DecodeItem& item = unit.item;
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const int num_rows = min(kHalfRows, queries.count() - half * kHalfRows);
    if (num_rows <= 0) break;
    SyncConsumers();  // the scratch memory was a tile, or has the other half
    tiles.Store(half, num_rows, scratch + warp * kHalfRows * kStride);
    SyncConsumers();
    for (int i = thread; i < num_rows * kHeadDim / 2; i += 32 * kWarps) {
      const int row = 2 * i / kHeadDim, column = 2 * i % kHeadDim;
      const int token = queries.Token(half * kHalfRows + row);
      const int head = queries.Head(half * kHalfRows + row);
      PartialAttention all[2];
      CombineWarpPartials<kHeadDim, kWarps>(scratch + row * kStride, kHalfRows * kStride, column,
                                            all);
      if (item.num_items > 1) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
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
  ProxyFence();  // the copy engine fills the slot next
  if (item.num_items == 1) return;
  __threadfence();
  SyncConsumers();
  if (thread == 0) {
    int32_t* ticket = p.tickets + item.sequence * p.num_heads + unit.first_head;
    shared.is_last = atomicAdd(ticket, 1) == item.num_items - 1;
    if (shared.is_last) *ticket = 0;
    __threadfence();
  }
  SyncConsumers();
  if (shared.is_last) CombineUnits<kHeadDim, kOneRow>(p, exchange, item, queries, thread);
}

// kOneRow: the step has one row. In such a step, and with wide heads in any step, the queries of a
// unit are those of one token.
template <int kHeadDim, CacheFormat kCache, StepLayers kLayers, bool kOneRow>
__device__ __forceinline__ void RunAttention(const DecodeStepParams& p, int layer_index,
                                             Consumer& consumer) {
  constexpr int kHalves = kOneRow || kHeadDim > kWideHeadDim ? 1 : 2;
  const DecodeStepLayer& layer = consumer.shared().layers[layer_index % 2];
  const LayerExchange exchange = ExchangeOf(p, consumer.shared().set, layer_index);
  const int thread = AttentionThread(), warp = thread / 32;
  char* cache = static_cast<char*>(p.cache) + layer_index * p.cache_layer_bytes;
  const UnitHeads<kHeadDim> heads(consumer.shared());
  for (int i = 0; HasUnit(p, i); ++i) {
    const AttentionUnit unit = UnitOf(p, consumer.shared(), i, layer.window);
    if (unit.num_tiles == 0) continue;
    const UnitQueries<kOneRow> queries(p, layer, exchange.qkv, exchange.stride, kHeadDim, unit);
    StoreHeads<kHeadDim, kCache, 2, kOneRow>(p, consumer.shared(), queries, thread);
    UnitTiles<kHeadDim, kCache, kHalves, kLayers == StepLayers::kGeneral> tiles;
    tiles.LoadQueries(heads, queries, thread);
    for (int tile = 0; tile < unit.num_tiles; ++tile) {
      char* at = consumer.Wait<kBlockSlots<kHeadDim>>();
      const int tile_index = unit.first_tile + tile;
      if (tile % 2 == warp / kTileWarps) {
        AppendTokens<kHeadDim, kCache, kOneRow>(p, heads, queries, unit, tile_index, thread, at,
                                                cache);
        tiles.Add(p, {unit, layer.window, tile_index, at});
      }
      if (tile + 1 == unit.num_tiles) {
        FinishUnit<kHeadDim, kHalves>(p, exchange, unit, queries, tiles, thread,
                                      reinterpret_cast<float*>(at), consumer.shared());
      }
      consumer.Release<kBlockSlots<kHeadDim>>();
    }
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
