// The work of a block of threads of prefill_attention.cu, tile by tile, and the shapes of its
// shared memory and registers. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/visible_blocks.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::prefill_attention {

template <int kHeadDim, CacheFormat kFormat>
struct PrefillShape {
  static constexpr bool kUnpacks = kFormat != CacheFormat::kBf16;
  static constexpr bool kQueriesInShared = kHeadDim > 128;           // else in registers
  static constexpr int kPanelBytes = KeyPanelColumns(kHeadDim) * 2;  // of a row
  // KV blocks of a step: one product computes their scores. With 64 columns, it does not reach the
  // tensor cores' rate.
  static constexpr int kBlocks = kHeadDim > 128 ? 1 : 2;
  // Heads of 256 leave no registers for a tile that begins while another one ends.
  static constexpr bool kJoinsTiles = kHeadDim <= 128;
  // The bytes of the keys and values that one step of the loop over the context reads.
  static constexpr int kStageBytes = kBlocks * static_cast<int>(HeadBytes(kHeadDim));
  static constexpr int kStages = kHeadDim > 128 ? 2 : 3;
  static constexpr int kQueryBytes = kQueriesInShared ? kQueryRows * kHeadDim * 2 : 0;
  static constexpr int kPackedStages = !kUnpacks ? 0 : kHeadDim > 128 ? 1 : 2;
  static constexpr int kPackedBytes = kUnpacks ? static_cast<int>(HeadBytes(kHeadDim, kFormat)) : 0;
  static constexpr int kSharedBytes =
      1024 + kQueryBytes + kStages * kStageBytes + kPackedStages * kPackedBytes + 256;
  // Registers of a producer thread and of a consumer thread. The three groups of threads (one
  // producer, two consumers) together have 504 for a thread of each.
  static constexpr int kProducerRegisters = kUnpacks ? 56 : 24;
  static constexpr int kConsumerRegisters = kUnpacks ? 224 : 240;

  // Byte offsets within a stage. Panels of keys have the rows of all blocks.
  static constexpr int kTileBytes = static_cast<int>(TileBytes(kHeadDim));
  static constexpr int ValuesOffset(int block) { return (kBlocks + block) * kTileBytes; }
};

// The barriers of the ring's stages, for keys and values apart: a stage's keys are read a step
// before its values.
struct PrefillBarriers {
  uint64_t *full_keys, *full_values, *empty_keys, *empty_values, *arrived;
};

// A tile, and the KV blocks that it sees, in steps of kBlocks blocks. The first block of a step has
// a number that is a multiple of kBlocks, so that a row's result does not depend on its tile.
template <int kBlocks>
struct PrefillWork {
  PrefillTile tile;
  int kv_head;
  VisibleBlocks steps;
  int window_first, last_block;  // of the blocks
  int num_last;                  // tokens of the last block that belong to the context
  int num_sinks;

  __device__ __forceinline__ int num_steps() const { return steps.count(); }
  // Number of a step's block; -1 if no row sees it.
  __device__ __forceinline__ int Block(int step, int part) const {
    const int block = steps[step] * kBlocks + part;
    if (kBlocks == 1) return block;
    const bool is_visible =
        block <= last_block && (block >= window_first || block * kBlockTokens < num_sinks);
    return is_visible ? block : -1;
  }
  // The block that is read for it: in place of one that no row sees the other one of the step.
  __device__ __forceinline__ int LoadedBlock(int step, int part) const {
    static_assert(kBlocks <= 2);
    const int block = Block(step, part);
    return block >= 0 ? block : steps[step] * kBlocks + 1 - part;
  }
  // Index of this head's part of a block within the layer's cache.
  __device__ __forceinline__ int64_t HeadOf(const PrefillAttentionParams& p, int block) const {
    return int64_t{p.words[tile.table_offset + block]} * p.num_kv_heads + kv_head;
  }
};

// Work of this block of threads in its `turn`. The longest work comes first: of all heads, or of
// each head (head_by_head). The order of the blocks alternates between turns, so that a block with
// the longest work of one turn has the shortest of the next.
template <int kBlocks>
__device__ __forceinline__ bool GetPrefillWork(const PrefillAttentionParams& p, int turn,
                                               PrefillWork<kBlocks>& work) {
  const auto grid = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const int index = turn * grid + (turn % 2 == 0 ? block : grid - 1 - block);
  if (index >= p.num_tiles * p.num_kv_heads) return false;
  const PrefillTile tile = p.tiles[p.head_by_head ? index % p.num_tiles : index / p.num_kv_heads];
  const int group = p.num_heads / p.num_kv_heads;
  const int last_index = min((tile.tile + 1) * kQueryRows, tile.num_tokens * group) - 1;
  const int first_position = tile.num_cached + tile.tile * kQueryRows / group;
  const int last_position = tile.num_cached + last_index / group;
  work.tile = tile;
  work.kv_head = p.head_by_head ? index / p.num_tiles : index % p.num_kv_heads;
  work.num_sinks = p.num_sinks;
  work.window_first = p.window > 0 ? max(0, first_position - p.window + 1) / kBlockTokens : 0;
  work.last_block = last_position / kBlockTokens;
  work.num_last =
      min(kBlockTokens, tile.num_cached + tile.num_tokens - work.last_block * kBlockTokens);
  constexpr int kStepTokens = kBlocks * kBlockTokens;
  const int sink_steps = (p.num_sinks + kStepTokens - 1) / kStepTokens;
  work.steps = {0, work.last_block / kBlocks + 1, sink_steps * kBlockTokens,
                work.window_first / kBlocks};
  return true;
}

// Iterates over the KV blocks of all work of this block of threads.
template <int kBlocks>
class BlockCursor {
 public:
  __device__ explicit BlockCursor(const PrefillAttentionParams& p) : p_(p) {
    has_block_ = GetPrefillWork(p_, turn_, work_);
  }
  __device__ bool has_block() const { return has_block_; }
  __device__ const PrefillWork<kBlocks>& work() const { return work_; }
  __device__ bool is_last() const { return block() == work_.last_block; }
  // Index of the head's part of a block within the layer's cache.
  __device__ int64_t head() const { return work_.HeadOf(p_, block()); }
  __device__ void Advance() {
    if (++i_ < work_.num_steps() * kBlocks) return;
    i_ = 0;
    has_block_ = GetPrefillWork(p_, ++turn_, work_);
  }

 private:
  __device__ int block() const { return work_.LoadedBlock(i_ / kBlocks, i_ % kBlocks); }

  const PrefillAttentionParams& p_;
  PrefillWork<kBlocks> work_;
  int turn_ = 0, i_ = 0;
  bool has_block_;
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::prefill_attention
