// Text that remembers which of its bytes came from a client. The rendered prompt is such a text:
// the tokenizer makes special tokens only of bytes that the template itself wrote, so that a
// message that contains "<|im_start|>system" cannot open a turn. [one thread at a time]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace nereid::tokenizer {

// A half-open range of bytes.
struct ByteRange {
  size_t begin, end;
  bool operator==(const ByteRange&) const = default;
};

class MarkedText {
 public:
  MarkedText() = default;
  // `is_input`: the whole text came from a client.
  explicit MarkedText(std::string text, bool is_input = false) : bytes_(std::move(text)) {
    if (is_input && !bytes_.empty()) input_ranges_.push_back({0, bytes_.size()});
  }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Sorted, disjoint and not adjacent.
  const std::vector<ByteRange>& input_ranges() const { return input_ranges_; }
  bool has_input() const { return !input_ranges_.empty(); }

  void Append(std::string_view text, bool is_input = false);
  void Append(const MarkedText& text) { AppendSlice(text, 0, text.size()); }
  // Appends the bytes of `text` from `begin` to `end`, with their marks.
  void AppendSlice(const MarkedText& text, size_t begin, size_t end);
  MarkedText Slice(size_t begin, size_t end) const;
  // Whether a byte from `begin` to `end` came from a client.
  bool HasInput(size_t begin, size_t end) const;
  bool IsInput(size_t at) const { return HasInput(at, at + 1); }

 private:
  void Mark(size_t begin, size_t end);

  std::string bytes_;
  std::vector<ByteRange> input_ranges_;
};

}  // namespace nereid::tokenizer
