// The work of a block of threads of prefill_attention.cu, tile by tile, and the shapes of its
// shared memory and registers. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/visible_blocks.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::prefill_attention {

template <int kHeadDim, CacheFormat kFormat>
struct PrefillShape {
  static constexpr bool kQueriesInShared = kHeadDim > 128;           // else in registers
  static constexpr int kPanelBytes = KeyPanelColumns(kHeadDim) * 2;  // of a row
  static constexpr int kStages = kHeadDim > 128 ? 2 : 4;
  // The values of a block are added while the next block's scores become weights. This needs
  // another stage, and registers.
  static constexpr bool kOverlaps = kHeadDim <= 128;
  static constexpr int kQueryBytes = kQueriesInShared ? kQueryRows * kHeadDim * 2 : 0;
  static constexpr bool kUnpacks = kFormat != CacheFormat::kBf16;
  static constexpr int kPackedStages = !kUnpacks ? 0 : kHeadDim > 128 ? 1 : 2;
  static constexpr int kPackedBytes = kUnpacks ? static_cast<int>(HeadBytes(kHeadDim, kFormat)) : 0;
  static constexpr int kSharedBytes = 1024 + kQueryBytes +
                                      kStages * static_cast<int>(HeadBytes(kHeadDim)) +
                                      kPackedStages * kPackedBytes + 256;
  // Registers of a producer thread and of a consumer thread.
  static constexpr int kProducerRegisters = kUnpacks ? 80 : 24;
  static constexpr int kConsumerRegisters = kUnpacks ? 208 : 240;
};

// A tile, and the KV blocks that it sees.
struct PrefillWork {
  PrefillTile tile;
  int kv_head;
  VisibleBlocks blocks;
  int num_last;  // tokens of the last block that belong to the context
};

// Work of this block of threads in its `turn`, longest first. The order of the blocks alternates
// between turns: a block with the longest work of one turn has the shortest of the next.
__device__ __forceinline__ bool GetPrefillWork(const PrefillAttentionParams& p, int turn,
                                               PrefillWork& work) {
  const auto grid = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const int index = turn * grid + (turn % 2 == 0 ? block : grid - 1 - block);
  if (index >= p.num_tiles * p.num_kv_heads) return false;
  const PrefillTile tile = p.tiles[index / p.num_kv_heads];
  const int group = p.num_heads / p.num_kv_heads;
  const int last_index = min((tile.tile + 1) * kQueryRows, tile.num_tokens * group) - 1;
  const int first_position = tile.num_cached + tile.tile * kQueryRows / group;
  const int last_position = tile.num_cached + last_index / group;
  work.tile = tile;
  work.kv_head = index % p.num_kv_heads;
  const int last_block = last_position / kBlockTokens;
  work.blocks = {0, last_block + 1, p.num_sinks,
                 p.window > 0 ? max(0, first_position - p.window + 1) / kBlockTokens : 0};
  work.num_last = min(kBlockTokens, tile.num_cached + tile.num_tokens - last_block * kBlockTokens);
  return true;
}

// Iterates over the KV blocks of all work of this block of threads.
class BlockCursor {
 public:
  __device__ explicit BlockCursor(const PrefillAttentionParams& p) : p_(p) {
    has_block_ = GetPrefillWork(p_, turn_, work_);
  }
  __device__ bool has_block() const { return has_block_; }
  __device__ const PrefillWork& work() const { return work_; }
  __device__ bool is_last() const { return i_ == work_.blocks.count() - 1; }
  // Index of the head's part of a block within the layer's cache.
  __device__ int64_t head() const {
    const int block = p_.words[work_.tile.table_offset + work_.blocks[i_]];
    return int64_t{block} * p_.num_kv_heads + work_.kv_head;
  }
  __device__ void Advance() {
    if (++i_ < work_.blocks.count()) return;
    i_ = 0;
    has_block_ = GetPrefillWork(p_, ++turn_, work_);
  }

 private:
  const PrefillAttentionParams& p_;
  PrefillWork work_;
  int turn_ = 0, i_ = 0;
  bool has_block_;
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::prefill_attention
