// Launches attention over paged contexts, for decoding sequences and for prompt chunks, and the
// kernels that unpack a KV cache to bf16 or move keys and values within it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/device/form.h"
#include "backends/gpu_llm/step_plan.h"

namespace nereid::gpu {

struct MoveRange;  // step_drafts.h
struct TokenMove;

// Attention of decoding sequences over their paged contexts: of the newest token and its drafts.
// The queries of one key/value head form the rows of a matrix product: its query heads, for some
// consecutive tokens. Long contexts are split over blocks of threads (DecodeItem). The last block
// to finish combines the partial results, always in the same order.
struct DecodeAttentionParams {
  const __nv_bfloat16* qkv;  // [.., qkv_stride]: queries first
  __nv_bfloat16* out;        // [.., num_heads * head_dim]
  const void* cache;         // this layer's blocks
  const DecodeItem* items;   // [num_items]
  const int32_t* words;      // the step's plan, which contains the block tables
  // [num_items, item_tokens, num_heads, PartialFloats()]: of split contexts
  float* partials;
  int32_t* tickets;  // [groups of queries, num_heads]: finished items, zero before and after
  int item_tokens;   // StepPlanner::item_tokens()
  int num_items, num_heads, num_kv_heads, head_dim, qkv_stride;
  int window;             // how many of the newest tokens a query sees; 0: all
  int num_sinks;          // of the first tokens, which it sees, too; with a window
  float scale, soft_cap;  // soft_cap 0: none
  CacheFormat format;
  bool has_chains;  // StepShape
  // StagesValues(): for wide heads, which then have room for two blocks of threads on a
  // multiprocessor. Ignored with draft trees and where no kernel does so.
  bool stages_values;
  // Of draft trees, as StepLayout says; null: none.
  const int32_t* tree_roots;
  const int32_t* tree_masks;
  bool gathers_trees;  // StepShape
};

inline namespace NEREID_KERNEL_FORM {
void DecodeAttention(const DecodeAttentionParams& params, cudaStream_t stream);
// The same for a quantized cache.
void DecodeAttentionQuantized(const DecodeAttentionParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

// Causal attention of prompt chunks over their paged contexts. The chunk's own keys and values are
// already in the cache.
struct PrefillAttentionParams {
  const __nv_bfloat16* qkv;  // [.., qkv_stride]: queries first
  __nv_bfloat16* out;        // [.., out_stride]
  const void* cache;         // this layer's blocks
  const PrefillTile* tiles;  // [num_tiles]
  const int32_t* words;      // the step's plan, which contains the block tables
  int num_tiles, num_heads, num_kv_heads, head_dim;
  int qkv_stride, out_stride;  // elements from one row to the next
  int window;                  // how many of the newest tokens a query sees; 0: all
  int num_sinks;               // of the first tokens, which it sees, too; with a window
  float scale, soft_cap;       // soft_cap 0: none
  CacheFormat format;
  // Multiprocessors, each of which handles several tiles; 0: one block of threads for each tile.
  int num_processors;
  // Whether all tiles of a key/value head come before those of the next one (TakesHeadsInTurn());
  // otherwise the same tile of all heads comes before the next tile.
  bool head_by_head;
};

inline namespace NEREID_KERNEL_FORM {
void PrefillAttention(const PrefillAttentionParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

// Unpacks blocks of a quantized cache to the bf16 layout. PrefillAttention() unpacks a block again
// for each tile that reads it; with many tiles, this costs less. The values are the same.
struct UnpackCacheParams {
  const void* cache;      // this layer's blocks
  const int32_t* blocks;  // [num_blocks]: which
  void* out;              // [num_blocks, num_heads]
  int num_blocks, num_kv_heads, head_dim;
  CacheFormat format;         // not bf16
  int first_head, num_heads;  // of the num_kv_heads of a block in `cache`
};

inline namespace NEREID_KERNEL_FORM {
void UnpackCache(const UnpackCacheParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

// Moves the keys and values of accepted drafts of trees to the places behind the newest token, in
// all layers. The moves of a sequence happen one after the other, so that a place may be read and
// then written. Sequences share no place.
struct MoveTokensParams {
  void* cache;  // [num_layers] layers of blocks
  int64_t layer_bytes;
  const TokenMove* moves;   // readable by the device
  const MoveRange* ranges;  // [num_sequences]
  int num_sequences, num_layers, num_kv_heads, head_dim;
  CacheFormat format;
};

inline namespace NEREID_KERNEL_FORM {
void MoveTokens(const MoveTokensParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
