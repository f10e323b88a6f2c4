// The blocks that may be evicted, in the order in which they are: by retention priority, lowest
// first, then least recently used first. [engine thread]
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "backends/llm_core/engine/kv_retention.h"
#include "backends/llm_core/engine/prefix_cache.h"

namespace nereid::llm {

class EvictionOrder {
 public:
  // Links the blocks through their fields in `blocks`, which must outlive the order.
  explicit EvictionOrder(std::span<KvBlock> blocks);

  int32_t size() const { return size_; }
  // Adds the block as the most recently used one of its priority. Its duration begins now.
  void Add(int32_t block, int64_t now_ms);
  // The same, with a duration that ends at `end_ms`; 0: as the block has none.
  void AddUntil(int32_t block, int64_t end_ms);
  void Remove(int32_t block);
  // When the duration of a block in the order ends, in ms; 0: it has none.
  int64_t EndOf(int32_t block) const {
    const auto end = ends_.find(block);
    return end == ends_.end() ? 0 : end->second;
  }
  // The block to evict first; -1: none. Blocks whose duration has ended get the default priority,
  // at the place that their last use gives them.
  int32_t First(int64_t now_ms);
  // A guess of the block to evict after the first one, for prefetches; -1: none.
  int32_t Next(int32_t first) const { return blocks_[first].after; }
  // All blocks, in no particular order.
  std::vector<int32_t> Members() const;

 private:
  struct List {
    int32_t oldest = -1;
    int32_t newest = -1;
  };
  static constexpr int32_t kNumLists = kMaxRetentionPriority + 1;

  void Unlink(int32_t block);
  void Expire(int64_t now_ms);
  void MarkUsed(int32_t list, bool is_used);

  const std::span<KvBlock> blocks_;
  int32_t size_ = 0;
  uint64_t next_use_ = 1;
  std::array<List, kNumLists> lists_;                // by priority
  std::array<uint64_t, 2> used_lists_ = {};          // bit list % 64 of word list / 64
  std::set<std::pair<uint64_t, int32_t>> expired_;   // last use, block
  std::set<std::pair<int64_t, int32_t>> durations_;  // end in ms, block
  std::unordered_map<int32_t, int64_t> ends_;        // of the blocks in durations_
};

}  // namespace nereid::llm
