// Reference-counted KV blocks.
#include "backends/llm_core/engine/block_manager.h"

#include <cassert>

namespace nereid::llm {

BlockManager::BlockManager(int32_t num_blocks, int32_t block_size, bool keeps_prefixes)
    : block_size_(block_size), all_(num_blocks) {
  free_blocks_.reserve(num_blocks);
  for (int32_t block = num_blocks - 1; block >= 0; --block) free_blocks_.push_back(block);
  if (keeps_prefixes) prefixes_.emplace(all_, block_size);
}

int32_t BlockManager::Allocate() {
  assert(num_free() > 0);
  int32_t block = oldest_kept_;
  if (free_blocks_.empty()) {  // the longest unused content makes room
    UnlinkKept(block);
    prefixes_->Forget(block);
    if (oldest_kept_ >= 0) {  // it is the next to go; the one behind it has time
      prefixes_->PrefetchSlot(oldest_kept_);
      const int32_t second = all_[oldest_kept_].after;
      if (second >= 0) __builtin_prefetch(&all_[second], 1);
    }
  } else {
    block = free_blocks_.back();
    free_blocks_.pop_back();
  }
  all_[block].references = 1;
  return block;
}

void BlockManager::AddReference(int32_t block) {
  if (all_[block].references++ == 0) UnlinkKept(block);
}

void BlockManager::Release(int32_t block) {
  KvBlock& released = all_[block];
  assert(released.references > 0);
  if (--released.references > 0) return;
  if (released.serial != 0) {
    LinkKept(block);
  } else {
    free_blocks_.push_back(block);
  }
}

void BlockManager::ReleaseAll(std::vector<int32_t>& block_table, int32_t first_released,
                              int32_t end_released) {
  constexpr int32_t kAhead = 8;
  for (auto i = static_cast<int32_t>(block_table.size()); i-- > 0;) {
    if (i >= kAhead) __builtin_prefetch(&all_[block_table[i - kAhead]], 1);
    if (i < first_released || i >= end_released) Release(block_table[i]);
  }
  block_table.clear();
}

void BlockManager::MatchPrefix(std::span<const int32_t> token_ids, int32_t max_blocks,
                               PrefixChain& chain, std::vector<int32_t>& blocks) {
  if (prefixes_.has_value()) prefixes_->Match(token_ids, max_blocks, chain, blocks);
}

void BlockManager::LinkKept(int32_t block) {
  all_[block].before = newest_kept_;
  all_[block].after = -1;
  (newest_kept_ >= 0 ? all_[newest_kept_].after : oldest_kept_) = block;
  newest_kept_ = block;
  ++num_kept_;
}

void BlockManager::UnlinkKept(int32_t block) {
  const KvBlock& kept = all_[block];
  (kept.before >= 0 ? all_[kept.before].after : oldest_kept_) = kept.after;
  (kept.after >= 0 ? all_[kept.after].before : newest_kept_) = kept.before;
  --num_kept_;
}

Status BlockManager::CheckKept(std::vector<bool>& is_free) const {
  int32_t num_kept = 0;
  for (int32_t block = oldest_kept_; block >= 0; block = all_[block].after, ++num_kept) {
    if (num_kept > num_blocks()) return InternalError("the list of kept KV blocks is a circle");
    if (is_free[block]) return InternalError("KV block ", block, " is both free and kept");
    if (!prefixes_->Holds(block)) {
      return InternalError("KV block ", block, " is kept for nothing");
    }
    is_free[block] = true;
  }
  if (num_kept == num_kept_) return Status::Ok();
  return InternalError("kept KV blocks: ", num_kept_, " counted, ", num_kept, " listed");
}

Status BlockManager::CheckInvariants(std::span<const std::span<const int32_t>> block_tables) const {
  std::vector<int32_t> counted(all_.size(), 0);
  for (const std::span<const int32_t> table : block_tables) {
    for (const int32_t block : table) {
      if (block < 0 || block >= num_blocks()) {
        return InternalError("KV block ", block, " in a table, expected 0 to ", num_blocks() - 1);
      }
      ++counted[block];
    }
  }
  std::vector<bool> is_free(all_.size(), false);
  for (const int32_t block : free_blocks_) {
    if (is_free[block]) return InternalError("KV block ", block, " is twice in the free list");
    is_free[block] = true;
    if (prefixes_.has_value() && prefixes_->Holds(block)) {
      return InternalError("KV block ", block, " is free and still known by its content");
    }
  }
  NEREID_RETURN_IF_ERROR(CheckKept(is_free));
  for (int32_t block = 0; block < num_blocks(); ++block) {
    if (counted[block] != all_[block].references) {
      return InternalError("KV block ", block, ": ", all_[block].references,
                           " references counted, ", counted[block], " held");
    }
    if (is_free[block] != (all_[block].references == 0)) {
      return InternalError("KV block ", block, " has ", all_[block].references,
                           " references and is ", is_free[block] ? "free" : "not free");
    }
  }
  return Status::Ok();
}

}  // namespace nereid::llm
