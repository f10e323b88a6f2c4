// One list for each priority, and the blocks whose duration has ended, by their last use.
#include "backends/llm_core/engine/eviction_order.h"

#include <bit>
#include <cassert>

namespace nereid::llm {

EvictionOrder::EvictionOrder(std::span<KvBlock> blocks) : blocks_(blocks) {}

void EvictionOrder::Add(int32_t block, int64_t now_ms) {
  const int32_t duration_ms = blocks_[block].duration_ms;
  AddUntil(block, duration_ms == 0 ? 0 : now_ms + duration_ms);
}

void EvictionOrder::AddUntil(int32_t block, int64_t end_ms) {
  KvBlock& added = blocks_[block];
  List& list = lists_[added.priority];
  added.last_use = next_use_++;
  added.before = list.newest;
  added.after = -1;
  if (list.newest >= 0) {
    blocks_[list.newest].after = block;
  } else {
    list.oldest = block;
    MarkUsed(added.priority, true);
  }
  list.newest = block;
  ++size_;
  if (end_ms == 0) return;
  durations_.insert({end_ms, block});
  ends_[block] = end_ms;
}

void EvictionOrder::Remove(int32_t block) {
  KvBlock& removed = blocks_[block];
  if (removed.is_expired) {
    expired_.erase({removed.last_use, block});
    removed.is_expired = false;
  } else {
    Unlink(block);
  }
  --size_;
  if (removed.duration_ms == 0) return;
  const auto end = ends_.find(block);
  if (end == ends_.end()) return;
  durations_.erase({end->second, block});
  ends_.erase(end);
}

void EvictionOrder::Unlink(int32_t block) {
  const KvBlock& removed = blocks_[block];
  List& list = lists_[removed.priority];
  (removed.before >= 0 ? blocks_[removed.before].after : list.oldest) = removed.after;
  (removed.after >= 0 ? blocks_[removed.after].before : list.newest) = removed.before;
  if (list.oldest < 0) MarkUsed(removed.priority, false);
}

void EvictionOrder::Expire(int64_t now_ms) {
  while (!durations_.empty() && durations_.begin()->first <= now_ms) {
    const int32_t block = durations_.begin()->second;
    durations_.erase(durations_.begin());
    ends_.erase(block);
    Unlink(block);
    KvBlock& expired = blocks_[block];
    expired.priority = kDefaultRetentionPriority;
    expired.duration_ms = 0;
    expired.is_expired = true;
    expired_.insert({expired.last_use, block});
  }
}

int32_t EvictionOrder::First(int64_t now_ms) {
  if (!durations_.empty()) Expire(now_ms);
  int32_t list = kNumLists;
  for (int32_t word = 1; word >= 0; --word) {
    if (used_lists_[word] != 0) list = 64 * word + std::countr_zero(used_lists_[word]);
  }
  if (expired_.empty() || list < kDefaultRetentionPriority)
    return list < kNumLists ? lists_[list].oldest : -1;
  const auto& [expired_use, expired] = *expired_.begin();
  if (list > kDefaultRetentionPriority) return expired;
  const int32_t oldest = lists_[list].oldest;
  return blocks_[oldest].last_use < expired_use ? oldest : expired;
}

std::vector<int32_t> EvictionOrder::Members() const {
  std::vector<int32_t> members;
  for (const List& list : lists_) {
    // A cycle ends the walk, too: the caller compares the number.
    for (int32_t block = list.oldest; block >= 0 && members.size() <= static_cast<size_t>(size_);
         block = blocks_[block].after) {
      members.push_back(block);
    }
  }
  for (const auto& [last_use, block] : expired_) members.push_back(block);
  return members;
}

void EvictionOrder::MarkUsed(int32_t list, bool is_used) {
  const uint64_t bit = uint64_t{1} << (list % 64);
  used_lists_[list / 64] = is_used ? used_lists_[list / 64] | bit : used_lists_[list / 64] & ~bit;
}

}  // namespace nereid::llm
