// Allocates the fixed-size blocks of the KV cache and counts the references to each. Unreferenced
// blocks with a cached prefix keep their content until they are evicted, by retention priority and
// then least recently used first.
// Knows neither sequences nor device memory. [engine thread]
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backends/llm_core/engine/block_storage.h"
#include "backends/llm_core/engine/eviction_order.h"
#include "backends/llm_core/engine/kv_events.h"
#include "backends/llm_core/engine/kv_retention.h"
#include "backends/llm_core/engine/prefix_cache.h"
#include "nereid/status.h"

namespace nereid::llm {

class BlockPool {
 public:
  // Block table entry of a released block whose tokens left the attention window. Executors may
  // read block 0 in its place, but must not use the content.
  static constexpr int32_t kReleased = 0;

  // `storage`, if not null, must outlive the pool. It has no effect without a prefix cache.
  BlockPool(int32_t num_blocks, int32_t block_size, bool has_prefix_cache = false,
            BlockStorage* storage = nullptr);
  BlockPool(const BlockPool&) = delete;  // the prefix cache points into the pool
  BlockPool& operator=(const BlockPool&) = delete;

  int32_t block_size() const { return block_size_; }
  int32_t num_blocks() const { return num_blocks_; }
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
    const bool is_new = prefixes_->Insert(token_ids, block, hash, chain);
    if (is_new) return NoteStored(block);
    if (chain.block >= num_blocks_) MoveComputed(chain, block);
  }
  // Sets how long the content of `block` is kept. No effect on content that is not cached.
  void SetRetention(int32_t block, const BlockRetention& retention);
  // The time from which durations are counted, in ms. It never goes back.
  void SetTime(int64_t now_ms) { now_ms_ = now_ms; }
  bool is_referenced(int32_t block) const { return blocks_[block].references > 0; }

  // From now on, TakeEvents() returns what becomes of the cached content. The first events say what
  // is cached already.
  void NoteEvents();
  std::vector<KvEvent> TakeEvents() { return std::exchange(events_, {}); }

  // --- places outside the KV cache: their numbers are num_blocks() and more. MatchPrefix returns
  // them like blocks. A reference keeps the content of a place where it is.
  bool is_outside(int32_t place) const { return place >= num_blocks_; }
  bool is_in_file(int32_t place) const {
    return is_outside(place) && tiers_[TierOf(place)].is_file;
  }
  // The content's serial; 0: the block or place has no cached content.
  uint64_t SerialOf(int32_t place) const { return blocks_[place].serial; }
  // `block`, which the caller has referenced, now holds the content of `place`.
  void MoveIn(int32_t place, int32_t block);
  // The content is lost.
  void Forget(int32_t place) {
    if (blocks_[place].serial != 0) EraseTree(place);
  }
  // Copies the cached content to the file, as far as it has room.
  void SaveToFile();
  int32_t num_outside() const;                              // places with content
  int64_t num_moved_out() const { return num_moved_out_; }  // blocks so far

  // Checks that free list, LRU list and reference counts agree, and that the tables hold exactly
  // the counted references. The INTERNAL error names the block.
  Status CheckInvariants(std::span<const std::span<const int32_t>> block_tables) const;

 private:
  // The places in host memory, or those in the file.
  struct Tier {
    int32_t begin;
    int32_t end;
    bool is_file;
    std::vector<int32_t> free;  // used as a stack
    EvictionOrder order;
  };

  // Content that begins to be, or no longer is, in the block or place. Only that of requests
  // without a salt of any kind is noted: readers know prompts by their tokens.
  void NoteStored(int32_t place) {
    if (notes_events_ && blocks_[place].salt == 0) AppendStored(place);
  }
  void NoteRemoved(int32_t place);
  void AppendStored(int32_t place);
  KvMedium MediumOf(int32_t place) const;
  // prefixes_->Move, noted.
  void MoveContent(int32_t from, int32_t to);

  size_t TierOf(int32_t place) const { return place < tiers_.front().end ? 0 : 1; }
  EvictionOrder& OrderOf(int32_t place) {
    return is_outside(place) ? tiers_[TierOf(place)].order : order_;
  }
  std::vector<int32_t>& FreeListOf(int32_t place) {
    return is_outside(place) ? tiers_[TierOf(place)].free : free_blocks_;
  }
  // The content of the place at the end of the chain was computed again in `block`.
  void MoveComputed(PrefixChain& chain, int32_t block);
  void AddTier(int32_t num_places, bool is_file);
  void RestoreStored();
  // Frees at least the block to evict first.
  void Evict();
  // Removes the content from the cache, and what no prompt can find without it.
  void EraseTree(int32_t place);
  // Moves the content of an evictable block or place to a place of the tier. Returns whether `from`
  // is free now.
  bool MoveOut(int32_t from, size_t tier);
  // Returns a free place of the tier; -1: all are in use.
  int32_t TakePlace(size_t tier);
  Status CheckEvictable(const EvictionOrder& order, std::vector<bool>& is_free) const;

  int32_t num_blocks_;
  int32_t block_size_;
  BlockStorage* storage_;
  std::vector<KvBlock> blocks_;       // [num_blocks], then the places outside
  std::vector<int32_t> free_blocks_;  // used as a stack
  std::optional<PrefixCache> prefixes_;
  EvictionOrder order_;
  std::vector<Tier> tiers_;  // contents move from one to the next
  int64_t num_moved_out_ = 0;
  int64_t now_ms_ = 0;
  std::vector<int32_t> erased_;  // scratch memory of EraseTree
  bool notes_events_ = false;
  std::vector<KvEvent> events_;
};

}  // namespace nereid::llm
