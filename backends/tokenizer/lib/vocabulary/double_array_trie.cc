// See double_array_trie.h.
#include "backends/tokenizer/lib/vocabulary/double_array_trie.h"

#include <algorithm>

namespace nereid::tokenizer {
namespace {

// Number of positions tried for a node's children before they are appended at the end.
constexpr int kMaxTries = 64;

}  // namespace

DoubleArrayTrie::DoubleArrayTrie(std::vector<Key> keys) {
  std::stable_sort(keys.begin(), keys.end(),
                   [](const Key& a, const Key& b) { return a.text < b.text; });
  const auto same = [](const Key& a, const Key& b) { return a.text == b.text; };
  // In reverse, so that the last of equal keys remains.
  keys.erase(keys.begin(), std::unique(keys.rbegin(), keys.rend(), same).base());
  if (keys.empty()) return;
  units_.resize(257);
  units_[0].parent = 0;
  std::vector<Range> open = {{0, 0, static_cast<uint32_t>(keys.size()), 0}};
  while (!open.empty()) {
    const Range range = open.back();
    open.pop_back();
    InsertChildren(keys, range, open);
  }
  units_.shrink_to_fit();
}

// Creates the children of `range`'s node, one for each distinct next byte.
void DoubleArrayTrie::InsertChildren(const std::vector<Key>& keys, const Range& range,
                                     std::vector<Range>& open) {
  uint32_t first = range.first;
  if (keys[first].text.size() == range.depth) units_[range.node].value = keys[first++].value;
  std::vector<unsigned char> labels;
  std::vector<uint32_t> starts;
  for (uint32_t i = first; i < range.last; ++i) {
    const auto label = static_cast<unsigned char>(keys[i].text[range.depth]);
    if (labels.empty() || labels.back() != label) {
      labels.push_back(label);
      starts.push_back(i);
    }
  }
  if (labels.empty()) return;
  starts.push_back(range.last);
  const uint32_t base = FindBase(labels);
  if (units_.size() < base + 256) units_.resize(base + 256);
  units_[range.node].base = base;
  for (size_t i = 0; i < labels.size(); ++i) units_[base + labels[i]].parent = range.node;
  for (size_t i = 0; i < labels.size(); ++i) {
    open.push_back({base + labels[i], starts[i], starts[i + 1], range.depth + 1});
  }
}

uint32_t DoubleArrayTrie::FindBase(const std::vector<unsigned char>& labels) {
  const auto is_free = [&](uint32_t unit) {
    return unit >= units_.size() || units_[unit].parent == kFree;
  };
  while (search_from_ < units_.size() && !is_free(search_from_)) ++search_from_;
  uint32_t at = std::max<uint32_t>(search_from_, labels[0] + 1u);
  for (int tries = 0; tries < kMaxTries; ++tries, ++at) {
    while (!is_free(at)) ++at;
    const uint32_t base = at - labels[0];
    if (std::all_of(labels.begin(), labels.end(),
                    [&](unsigned char label) { return is_free(base + label); })) {
      return base;
    }
  }
  search_from_ = std::max(search_from_, at - kMaxTries);  // too densely used to search again
  return static_cast<uint32_t>(units_.size());
}

}  // namespace nereid::tokenizer
