// Hands out the fixed-size blocks of the KV cache, counts who refers to each, and keeps the content
// of blocks that nobody refers to for whoever comes with the same tokens, until their room is
// needed: the longest unused goes first. Knows neither sequences nor memory. [engine thread]
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backends/llm_core/engine/kv_block.h"
#include "backends/llm_core/engine/prefix_cache.h"
#include "nereid/status.h"

namespace nereid::llm {

class BlockManager {
 public:
  // A table entry of a sequence whose block was given back, since its tokens left the attention
  // window. Executors may read block 0 in its place, but must not use what is there.
  static constexpr int32_t kReleased = 0;

  BlockManager(int32_t num_blocks, int32_t block_size, bool keeps_prefixes = false);
  BlockManager(const BlockManager&) = delete;  // the prefix cache points into it
  BlockManager& operator=(const BlockManager&) = delete;

  int32_t block_size() const { return block_size_; }
  int32_t num_blocks() const { return static_cast<int32_t>(all_.size()); }
  // Without a reference: never used, or kept for their content alone.
  int32_t num_free() const { return static_cast<int32_t>(free_blocks_.size()) + num_kept_; }
  int32_t num_kept() const { return num_kept_; }
  int32_t num_used() const { return num_blocks() - num_free(); }
  int32_t BlocksFor(int64_t num_tokens) const {
    return static_cast<int32_t>((num_tokens + block_size_ - 1) / block_size_);
  }

  // A block with one reference. Requires num_free() > 0. The block given back last comes first: it
  // is the one whose memory is warm. Kept blocks are taken when there is no other.
  int32_t Allocate();
  void AddReference(int32_t block);
  // The last reference frees the block.
  void Release(int32_t block);
  // Releases every block of a table, the last first, and empties it. Those of [first_released,
  // end_released) are not the table's any more.
  void ReleaseAll(std::vector<int32_t>& block_table, int32_t first_released = 0,
                  int32_t end_released = 0);

  // --- prefixes; without effect when they are not kept ---
  bool keeps_prefixes() const { return prefixes_.has_value(); }
  // Blocks of the longest known prefix of `token_ids`, at most `max_blocks`. Nobody's yet: call
  // AddReference for each before anything else is allocated.
  void MatchPrefix(std::span<const int32_t> token_ids, int32_t max_blocks, PrefixChain& chain,
                   std::vector<int32_t>& blocks);
  // `block`, which the caller refers to, now holds the `block_size` tokens that follow `chain`.
  // `hash`: what PreparePrefix said of the same arguments, best a few calls ahead.
  uint64_t PreparePrefix(const int32_t* token_ids, int32_t block, const PrefixChain& chain) const {
    return prefixes_->Prepare(token_ids, block, chain);
  }
  void KeepPrefix(const int32_t* token_ids, int32_t block, uint64_t hash, PrefixChain& chain) {
    prefixes_->Insert(token_ids, block, hash, chain);
  }
  bool is_referenced(int32_t block) const { return all_[block].references > 0; }

  // Checks that free list, kept list and counts agree, and that the tables hold exactly the
  // references that are counted. INTERNAL names the block.
  Status CheckInvariants(std::span<const std::span<const int32_t>> block_tables) const;

 private:
  void LinkKept(int32_t block);
  void UnlinkKept(int32_t block);
  Status CheckKept(std::vector<bool>& is_free) const;

  int32_t block_size_;
  std::vector<KvBlock> all_;          // [num_blocks]
  std::vector<int32_t> free_blocks_;  // a stack
  std::optional<PrefixCache> prefixes_;
  int32_t oldest_kept_ = -1;
  int32_t newest_kept_ = -1;
  int32_t num_kept_ = 0;
};

}  // namespace nereid::llm
