// Free list, reference counts and eviction of KV blocks.
#include "backends/llm_core/engine/block_pool.h"

#include <cassert>

namespace nereid::llm {

BlockPool::BlockPool(int32_t num_blocks, int32_t block_size, bool has_prefix_cache,
                     BlockStorage* storage)
    : num_blocks_(num_blocks),
      block_size_(block_size),
      storage_(has_prefix_cache ? storage : nullptr),
      blocks_(num_blocks + (storage_ == nullptr
                                ? 0
                                : storage_->num_host_places() + storage_->num_file_places())),
      order_(blocks_) {
  free_blocks_.reserve(num_blocks);
  for (int32_t block = num_blocks - 1; block >= 0; --block) free_blocks_.push_back(block);
  if (has_prefix_cache) prefixes_.emplace(blocks_, block_size);
  if (storage_ == nullptr) return;
  tiers_.reserve(2);
  AddTier(storage_->num_host_places(), false);
  AddTier(storage_->num_file_places(), true);
  RestoreStored();
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
  if (tiers_.empty() || !MoveOut(first, 0)) EraseTree(first);
  if (next < 0) return;
  prefixes_->PrefetchSlot(next);  // for the next two evictions
  if (blocks_[next].after >= 0) __builtin_prefetch(&blocks_[blocks_[next].after], 1);
}

void BlockPool::EraseTree(int32_t place) {
  erased_.clear();
  prefixes_->EraseTree(place, erased_);
  for (const int32_t each : erased_) {
    NoteRemoved(each);
    if (blocks_[each].references > 0) continue;  // becomes free when it is released
    OrderOf(each).Remove(each);
    FreeListOf(each).push_back(each);
  }
}

void BlockPool::AddReference(int32_t block) {
  if (blocks_[block].references++ == 0) OrderOf(block).Remove(block);
}

void BlockPool::Release(int32_t block) {
  KvBlock& released = blocks_[block];
  assert(released.references > 0);
  if (--released.references > 0) return;
  if (released.serial != 0) {
    OrderOf(block).Add(block, now_ms_);
  } else {
    FreeListOf(block).push_back(block);
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
  if (is_evictable) OrderOf(block).Remove(block);
  kept.priority = retention.priority;
  kept.duration_ms = retention.duration_ms;
  if (is_evictable) OrderOf(block).Add(block, now_ms_);
}

Status BlockPool::CheckEvictable(const EvictionOrder& order, std::vector<bool>& is_free) const {
  const std::vector<int32_t> members = order.Members();
  if (static_cast<int32_t>(members.size()) != order.size()) {
    return InternalError("evictable KV blocks: ", order.size(), " counted, ", members.size(),
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
      if (block < 0 || block >= static_cast<int32_t>(blocks_.size())) {
        return InternalError("KV block ", block, " in a table, expected 0 to ", blocks_.size() - 1);
      }
      ++counted[block];
    }
  }
  std::vector<bool> is_free(blocks_.size(), false);
  std::vector<int32_t> all_free = free_blocks_;
  for (const Tier& tier : tiers_)
    all_free.insert(all_free.end(), tier.free.begin(), tier.free.end());
  for (const int32_t block : all_free) {
    if (is_free[block]) return InternalError("KV block ", block, " occurs twice in the free list");
    is_free[block] = true;
    if (prefixes_.has_value() && prefixes_->Contains(block)) {
      return InternalError("KV block ", block, " is free, but still in the prefix cache");
    }
  }
  NEREID_RETURN_IF_ERROR(CheckEvictable(order_, is_free));
  for (const Tier& tier : tiers_) NEREID_RETURN_IF_ERROR(CheckEvictable(tier.order, is_free));
  for (size_t block = 0; block < blocks_.size(); ++block) {
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
