// Finds all keys that are prefixes of a text, in order of length. A double-array trie (J. Aoe,
// 1989) with one look-up per byte. Immutable after construction. [any thread]
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace nereid::tokenizer {

class DoubleArrayTrie {
 public:
  struct Key {
    std::string_view text;  // not empty
    int32_t value;          // not negative
  };

  DoubleArrayTrie() = default;
  // Of equal texts the last counts. Takes time linear in the total size of the texts.
  explicit DoubleArrayTrie(std::vector<Key> keys);

  // Calls `visit(value, end)` for each key that starts at `begin`, the shortest first.
  template <typename Visit>
  void ForEachPrefix(std::string_view text, size_t begin, Visit visit) const {
    if (units_.empty()) return;
    uint32_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const uint32_t child = units_[node].base + static_cast<unsigned char>(text[at]);
      if (child >= units_.size() || units_[child].parent != node) return;
      node = child;
      if (units_[node].value >= 0) visit(units_[node].value, at + 1);
    }
  }

 private:
  static constexpr uint32_t kFree = UINT32_MAX;
  struct Unit {
    uint32_t base = 0;
    uint32_t parent = kFree;
    int32_t value = -1;
  };
  struct Range {  // keys with the same first `depth` bytes, which lead to `node`
    uint32_t node, first, last;
    uint32_t depth;
  };

  uint32_t FindBase(const std::vector<unsigned char>& labels);
  void InsertChildren(const std::vector<Key>& keys, const Range& range, std::vector<Range>& open);

  std::vector<Unit> units_;
  uint32_t search_from_ = 1;
};

}  // namespace nereid::tokenizer
