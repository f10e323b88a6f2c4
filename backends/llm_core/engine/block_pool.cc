// Free list, reference counts and eviction of KV blocks.
#include "backends/llm_core/engine/block_pool.h"

#include <cassert>

namespace nereid::llm {

BlockPool::BlockPool(int32_t num_blocks, int32_t block_size, bool has_prefix_cache)
    : block_size_(block_size), blocks_(num_blocks), order_(blocks_) {
  free_blocks_.reserve(num_blocks);
  for (int32_t block = num_blocks - 1; block >= 0; --block) free_blocks_.push_back(block);
  if (has_prefix_cache) prefixes_.emplace(blocks_, block_size);
}

int32_t BlockPool::Allocate() {
  assert(num_free() > 0);
  if (free_blocks_.empty()) Evict();
  const int32_t block = free_blocks_.back();
  free_blocks_.pop_back();
  blocks_[block].references = 1;
  return block;
}

void BlockPool::Evict() {
  const int32_t first = order_.First(now_ms_);
  const int32_t next = order_.Next(first);
  erased_.clear();
  prefixes_->EraseTree(first, erased_);
  for (const int32_t block : erased_) {
    KvBlock& erased = blocks_[block];
    if (erased.references > 0) continue;  // becomes free when it is released
    order_.Remove(block);
    free_blocks_.push_back(block);
  }
  if (next < 0) return;
  prefixes_->PrefetchSlot(next);  // for the next two evictions
  if (blocks_[next].after >= 0) __builtin_prefetch(&blocks_[blocks_[next].after], 1);
}

void BlockPool::AddReference(int32_t block) {
  if (blocks_[block].references++ == 0) order_.Remove(block);
}

void BlockPool::Release(int32_t block) {
  KvBlock& released = blocks_[block];
  assert(released.references > 0);
  if (--released.references > 0) return;
  if (released.serial != 0) {
    order_.Add(block, now_ms_);
  } else {
    free_blocks_.push_back(block);
  }
}

void BlockPool::ReleaseAll(std::vector<int32_t>& block_table, int32_t first_released,
                           int32_t end_released) {
  constexpr int32_t kPrefetchDistance = 8;
  for (auto i = static_cast<int32_t>(block_table.size()); i-- > 0;) {
    if (i >= kPrefetchDistance) __builtin_prefetch(&blocks_[block_table[i - kPrefetchDistance]], 1);
    if (i < first_released || i >= end_released) Release(block_table[i]);
  }
  block_table.clear();
}

void BlockPool::MatchPrefix(std::span<const int32_t> token_ids, int32_t max_blocks,
                            PrefixChain& chain, std::vector<int32_t>& blocks) {
  if (prefixes_.has_value()) prefixes_->Match(token_ids, max_blocks, chain, blocks);
}

void BlockPool::SetRetention(int32_t block, const BlockRetention& retention) {
  KvBlock& kept = blocks_[block];
  if (kept.serial == 0) return;
  const bool is_evictable = kept.references == 0;
  if (is_evictable) order_.Remove(block);
  kept.priority = retention.priority;
  kept.duration_ms = retention.duration_ms;
  if (is_evictable) order_.Add(block, now_ms_);
}

Status BlockPool::CheckEvictable(std::vector<bool>& is_free) const {
  const std::vector<int32_t> members = order_.Members();
  if (static_cast<int32_t>(members.size()) != num_evictable()) {
    return InternalError("evictable KV blocks: ", num_evictable(), " counted, ", members.size(),
                         " listed");
  }
  for (const int32_t block : members) {
    if (is_free[block]) return InternalError("KV block ", block, " is both free and evictable");
    if (!prefixes_->Contains(block)) {
      return InternalError("KV block ", block, " is evictable, but not in the prefix cache");
    }
    is_free[block] = true;
  }
  return {};
}

Status BlockPool::CheckInvariants(std::span<const std::span<const int32_t>> block_tables) const {
  std::vector<int32_t> counted(blocks_.size(), 0);
  for (const std::span<const int32_t> table : block_tables) {
    for (const int32_t block : table) {
      if (block < 0 || block >= num_blocks()) {
        return InternalError("KV block ", block, " in a table, expected 0 to ", num_blocks() - 1);
      }
      ++counted[block];
    }
  }
  std::vector<bool> is_free(blocks_.size(), false);
  for (const int32_t block : free_blocks_) {
    if (is_free[block]) return InternalError("KV block ", block, " occurs twice in the free list");
    is_free[block] = true;
    if (prefixes_.has_value() && prefixes_->Contains(block)) {
      return InternalError("KV block ", block, " is free, but still in the prefix cache");
    }
  }
  NEREID_RETURN_IF_ERROR(CheckEvictable(is_free));
  for (int32_t block = 0; block < num_blocks(); ++block) {
    if (counted[block] != blocks_[block].references) {
      return InternalError("KV block ", block, ": ", blocks_[block].references,
                           " references counted, ", counted[block], " held");
    }
    if (is_free[block] != (blocks_[block].references == 0)) {
      return InternalError("KV block ", block, " has ", blocks_[block].references,
                           " references and is ", is_free[block] ? "free" : "not free");
    }
  }
  return Status::Ok();
}

}  // namespace nereid::llm
