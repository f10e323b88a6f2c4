// Finds strings of a set in a text; empty ones never match. Immutable once filled. [any thread]
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
  // The first of equal strings counts. `value` is what is found.
  void Add(std::string_view text, int32_t value);
  bool empty() const { return nodes_.size() == 1; }

  struct Match {
    size_t begin, end;
    int32_t value;
  };
  // The leftmost of the matches from `from` on, and of those the longest.
  std::optional<Match> Find(std::string_view text, size_t from) const;
  // The longest that begins at `begin`.
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
