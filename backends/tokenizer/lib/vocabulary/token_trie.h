// A trie that finds the strings of a set in a text. Immutable once filled. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace nereid::tokenizer {

class TokenTrie {
 public:
  // Adds a string with the value to return for it. Of equal strings the first counts. Empty strings
  // are ignored.
  void Add(std::string_view text, int32_t value);
  bool empty() const { return nodes_.size() == 1; }

  struct Match {
    size_t begin, end;
    int32_t value;
  };
  // Returns the leftmost match at or after `from`, and of those the longest.
  std::optional<Match> Find(std::string_view text, size_t from) const;
  // Returns the longest match at `begin`.
  std::optional<Match> FindAt(std::string_view text, size_t begin) const;

 private:
  struct Node {
    int32_t value = -1;
    std::vector<std::pair<unsigned char, int32_t>> children;
  };
  int32_t Child(int32_t node, char byte) const;

  std::vector<Node> nodes_ = {Node()};
  bool starts_[256] = {};
};

}  // namespace nereid::tokenizer
