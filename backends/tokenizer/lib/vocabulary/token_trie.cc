// See token_trie.h.
#include "backends/tokenizer/lib/vocabulary/token_trie.h"

#include <algorithm>

namespace nereid::tokenizer {

int32_t TokenTrie::Child(int32_t node, char byte) const {
  const auto& children = nodes_[node].children;
  const auto key = static_cast<unsigned char>(byte);
  const auto it =
      std::lower_bound(children.begin(), children.end(), key,
                       [](const auto& child, unsigned char k) { return child.first < k; });
  return it != children.end() && it->first == key ? it->second : -1;
}

void TokenTrie::Add(std::string_view text, int32_t value) {
  if (text.empty()) return;
  starts_[static_cast<unsigned char>(text[0])] = true;
  int32_t node = 0;
  for (const char byte : text) {
    int32_t child = Child(node, byte);
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      nodes_.emplace_back();
      auto& children = nodes_[node].children;
      const std::pair<unsigned char, int32_t> edge{static_cast<unsigned char>(byte), child};
      children.insert(std::upper_bound(children.begin(), children.end(), edge), edge);
    }
    node = child;
  }
  if (nodes_[node].value < 0) nodes_[node].value = value;
}

std::optional<TokenTrie::Match> TokenTrie::FindAt(std::string_view text, size_t begin) const {
  if (!starts_[static_cast<unsigned char>(text[begin])]) return std::nullopt;
  std::optional<Match> longest;
  int32_t node = 0;
  for (size_t end = begin; end < text.size() && (node = Child(node, text[end])) >= 0; ++end) {
    if (nodes_[node].value >= 0) longest = Match{begin, end + 1, nodes_[node].value};
  }
  return longest;
}

std::optional<TokenTrie::Match> TokenTrie::Find(std::string_view text, size_t from) const {
  if (empty()) return std::nullopt;
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (const auto match = FindAt(text, begin)) return match;
  }
  return std::nullopt;
}

}  // namespace nereid::tokenizer
