// Allocates the fixed-size blocks of the KV cache and counts the references to each. Unreferenced
// blocks with a cached prefix keep their content until they are evicted, by retention priority and
// then least recently used first.
// Knows neither sequences nor device memory. [engine thread]
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backends/llm_core/engine/eviction_order.h"
#include "backends/llm_core/engine/kv_retention.h"
#include "backends/llm_core/engine/prefix_cache.h"
#include "nereid/status.h"

namespace nereid::llm {

class BlockPool {
 public:
  // Block table entry of a released block whose tokens left the attention window. Executors may
  // read block 0 in its place, but must not use the content.
  static constexpr int32_t kReleased = 0;

  BlockPool(int32_t num_blocks, int32_t block_size, bool has_prefix_cache = false);
  BlockPool(const BlockPool&) = delete;  // the prefix cache points into the pool
  BlockPool& operator=(const BlockPool&) = delete;

  int32_t block_size() const { return block_size_; }
  int32_t num_blocks() const { return static_cast<int32_t>(blocks_.size()); }
  // Blocks without a reference: empty ones and evictable ones.
  int32_t num_free() const { return static_cast<int32_t>(free_blocks_.size()) + num_evictable(); }
  int32_t num_evictable() const { return order_.size(); }
  int32_t num_used() const { return num_blocks() - num_free(); }
  int32_t BlocksFor(int64_t num_tokens) const {
    return static_cast<int32_t>((num_tokens + block_size_ - 1) / block_size_);
  }

  // Returns a block with one reference. Requires num_free() > 0. Takes the most recently released
  // empty block first, whose memory is likely to be in a CPU cache. Evicts a cached block if no
  // empty one is left.
  int32_t Allocate();
  void AddReference(int32_t block);
  // Removes one reference. Without references, the block becomes free, or evictable if its prefix
  // is cached.
  void Release(int32_t block);
  // Releases every block of a table, last first, and clears the table. Entries in [first_released,
  // end_released) were released before and are skipped.
  void ReleaseAll(std::vector<int32_t>& block_table, int32_t first_released = 0,
                  int32_t end_released = 0);

  // --- prefix cache; no effect if it is disabled ---
  bool has_prefix_cache() const { return prefixes_.has_value(); }
  // Appends the blocks of the longest cached prefix of `token_ids`, at most `max_blocks`. The
  // caller must call AddReference for each of them before the next allocation.
  void MatchPrefix(std::span<const int32_t> token_ids, int32_t max_blocks, PrefixChain& chain,
                   std::vector<int32_t>& blocks);
  // `block`, which the caller has referenced, now holds the `block_size` tokens that follow
  // `chain`. `hash` is the result of PreparePrefix for the same arguments. Call PreparePrefix a few
  // insertions ahead, because it prefetches.
  uint64_t PreparePrefix(const int32_t* token_ids, int32_t block, const PrefixChain& chain) const {
    return prefixes_->Prepare(token_ids, block, chain);
  }
  void InsertPrefix(const int32_t* token_ids, int32_t block, uint64_t hash, PrefixChain& chain) {
    prefixes_->Insert(token_ids, block, hash, chain);
  }
  // Sets how long the content of `block` is kept. No effect on content that is not cached.
  void SetRetention(int32_t block, const BlockRetention& retention);
  // The time from which durations are counted, in ms. It never goes back.
  void SetTime(int64_t now_ms) { now_ms_ = now_ms; }
  bool is_referenced(int32_t block) const { return blocks_[block].references > 0; }

  // Checks that free list, LRU list and reference counts agree, and that the tables hold exactly
  // the counted references. The INTERNAL error names the block.
  Status CheckInvariants(std::span<const std::span<const int32_t>> block_tables) const;

 private:
  // Frees the block to evict first, and those that no prompt can find without it.
  void Evict();
  Status CheckEvictable(std::vector<bool>& is_free) const;

  int32_t block_size_;
  std::vector<KvBlock> blocks_;       // [num_blocks]
  std::vector<int32_t> free_blocks_;  // used as a stack
  std::optional<PrefixCache> prefixes_;
  EvictionOrder order_;
  int64_t now_ms_ = 0;
  std::vector<int32_t> erased_;  // scratch memory of Evict
};

}  // namespace nereid::llm
