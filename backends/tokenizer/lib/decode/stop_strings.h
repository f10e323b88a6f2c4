// Stop strings, found in a text as it streams in, wherever token borders lie. Text that may yet
// turn out to begin a stop string is held back. Copies share the strings: one may be made for each
// of many texts. [one thread at a time]
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
  // Empty strings never match. `keep_stop`: the stop string itself belongs to the text.
  explicit StopStringMatcher(const std::vector<std::string>& stops, bool keep_stop = false);

  // Appends to `out` what `text` settles; true once a stop string is complete, from when on nothing
  // is added any more. The stop string that ends first counts, of those the longest. Takes time in
  // proportion to `text`. Pieces of whole characters give pieces of whole characters.
  bool Push(std::string_view text, std::string& out);
  // The text ended: appends what was held back.
  void Finish(std::string& out);

  bool stopped() const { return match_.has_value(); }
  // Index into `stops` of the string that was found.
  std::optional<size_t> match() const { return match_; }
  size_t held_bytes() const { return held_.size(); }
  // Forgets the text so far, and what was found in it.
  void Restart();

 private:
  struct Node {
    int32_t fallback = 0;  // the node of the longest proper suffix
    int32_t stop = -1;     // the longest stop string that ends here, as an index
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
  int32_t node_ = 0;  // of the longest prefix of a stop string that the text ends with
  std::string held_;  // that prefix
  std::optional<size_t> match_;
};

}  // namespace nereid::tokenizer
