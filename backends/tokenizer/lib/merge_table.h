// The merge rules of a BPE model: pair of token ids -> rank and merged id. One flat table, one or
// two cache lines a look-up. Filled once, then immutable. [any thread after filling]
#pragma once

#include <cstdint>
#include <vector>

namespace nereid::tokenizer {

struct Merge {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t rank = kNone;  // the lowest is merged first
  int32_t id = -1;
};

class MergeTable {
 public:
  explicit MergeTable(size_t num_merges = 0) {
    size_t slots = 16;
    while (slots < num_merges * 2) slots *= 2;
    slots_.resize(slots);
    shift_ = 64;
    for (size_t n = slots; n > 1; n /= 2) --shift_;
  }

  // A pair again replaces its rule. At most as many pairs as the constructor was told.
  void Add(int32_t left, int32_t right, Merge merge) {
    const uint64_t key = Key(left, right);
    size_t slot = SlotOf(key);
    while (slots_[slot].key != kEmpty && slots_[slot].key != key) slot = Next(slot);
    slots_[slot] = {key, merge};
  }

  Merge Find(int32_t left, int32_t right) const {
    const uint64_t key = Key(left, right);
    for (size_t slot = SlotOf(key);; slot = Next(slot)) {
      if (slots_[slot].key == key) return slots_[slot].merge;
      if (slots_[slot].key == kEmpty) return {};
    }
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };

  static uint64_t Key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t SlotOf(uint64_t key) const {
    const uint64_t mixed = (key ^ key >> 29) * 0x9E3779B97F4A7C15u;
    return (mixed ^ mixed << 23) >> shift_;
  }
  size_t Next(size_t slot) const { return (slot + 1) & (slots_.size() - 1); }

  std::vector<Slot> slots_;
  int shift_;
};

}  // namespace nereid::tokenizer
