// The merge rules of a BPE model: maps a pair of token ids to its rank and merged id. A flat hash
// table; a look-up touches one or two cache lines. [any thread after filling]
#pragma once

#include <cstdint>
#include <vector>

namespace nereid::tokenizer {

struct Merge {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t rank = kNone;  // the lowest rank is merged first
  int32_t id = -1;
};

class MergeTable {
 public:
  static constexpr int kIdBits = 21, kRankBits = 22;
  static constexpr uint32_t kMaxRank = (1u << kRankBits) - 2;

  // `max_rank`: the highest rank if all rules of a rank have the same merged token, which saves
  // memory; else 0.
  explicit MergeTable(size_t num_merges = 0, uint32_t max_rank = 0)
      : slots_(num_merges + num_merges * 2 / 3 + 2, kEmpty),
        ids_(max_rank > 0 ? max_rank + 1 : slots_.size(), -1),
        is_by_rank_(max_rank > 0) {}

  // Adds or replaces the rule of a pair. Ids are below 1 << kIdBits and ranks at most kMaxRank. The
  // number of pairs must not exceed `num_merges`.
  void Add(int32_t left, int32_t right, Merge merge) {
    const uint64_t pair = Pair(left, right);
    size_t slot = SlotOf(pair);
    while (slots_[slot] != kEmpty && slots_[slot] >> kRankBits != pair) slot = Next(slot);
    slots_[slot] = pair << kRankBits | merge.rank;
    ids_[is_by_rank_ ? merge.rank : slot] = merge.id;
  }

  Merge Find(int32_t left, int32_t right) const {
    const uint64_t pair = Pair(left, right);
    for (size_t slot = SlotOf(pair);; slot = Next(slot)) {
      const uint64_t found = slots_[slot];
      if (found >> kRankBits == pair && found != kEmpty) {
        const auto rank = static_cast<uint32_t>(found & ((1u << kRankBits) - 1));
        return {rank, ids_[is_by_rank_ ? rank : slot]};
      }
      if (found == kEmpty) return {};
    }
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;

  static uint64_t Pair(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << kIdBits | static_cast<uint32_t>(right);
  }
  size_t SlotOf(uint64_t pair) const {
    const uint64_t mixed = (pair ^ pair >> 19) * 0x9E3779B97F4A7C15u;
    return ((mixed ^ mixed << 23) >> 32) * slots_.size() >> 32;
  }
  size_t Next(size_t slot) const { return slot + 1 == slots_.size() ? 0 : slot + 1; }

  std::vector<uint64_t> slots_;  // left id, right id and rank, from the highest bits down
  std::vector<int32_t> ids_;     // merged ids, indexed by rank or by slot
  bool is_by_rank_;
};

}  // namespace nereid::tokenizer
