/// \file
/// Finds stop strings in a text that arrives in chunks, independently of token boundaries. Text
/// that may be the beginning of a stop string is held back. Algorithm: A. Aho and M. Corasick,
/// "Efficient string matching: an aid to bibliographic search", 1975. Copies share the compiled
/// strings, so that one matcher can be copied for each of many texts. [one thread at a time]
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nereid::tokenizer {

class StopStringMatcher {
 public:
  /// Compiles `stops`, which are copied. Empty strings never match. With `keep_stop` the stop
  /// string remains part of the text; otherwise the text ends before it. Memory is linear in the
  /// total size of `stops`.
  explicit StopStringMatcher(const std::vector<std::string>& stops, bool keep_stop = false);

  /// Consumes the next chunk and appends to `out` the text that can no longer belong to a stop
  /// string. Returns true once a stop string was found; later calls append nothing. If several
  /// match, the one that ends first wins, and of those the longest. Runs in time linear in the size
  /// of `text`. If every chunk consists of whole UTF-8 characters, so does all output.
  bool Push(std::string_view text, std::string& out);
  /// Ends the text: appends the text that was held back.
  void Finish(std::string& out);

  bool stopped() const { return match_.has_value(); }
  /// Index into `stops` of the string that was found, or nothing.
  std::optional<size_t> match() const { return match_; }
  size_t pending_bytes() const { return pending_.size(); }
  /// Returns to the state before the first Push, for a new text.
  void Reset();

 private:
  struct Node {
    int32_t fallback = 0;  ///< node of the longest proper suffix
    int32_t stop = -1;     ///< index of the longest stop string that ends here, or -1
    uint32_t stop_size = 0;
    uint32_t depth = 0;
    std::vector<std::pair<char, int32_t>> children;
  };

  using Nodes = std::vector<Node>;

  static int32_t Child(const Nodes& nodes, int32_t node, char byte);
  static int32_t Next(const Nodes& nodes, int32_t node, char byte);
  static void Add(std::string_view stop, size_t index, Nodes& nodes);
  static void LinkSuffixes(Nodes& nodes);

  std::shared_ptr<const Nodes> nodes_;
  bool keep_stop_;
  int32_t node_ = 0;     ///< node of the longest prefix of a stop string at the end of the text
  std::string pending_;  ///< that prefix: the text held back
  std::optional<size_t> match_;
};

}  // namespace nereid::tokenizer
