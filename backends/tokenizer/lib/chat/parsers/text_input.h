// The part of a text that a parser has received and not consumed. [one thread at a time]
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace nereid::tokenizer::parsers {

using Markers = std::span<const std::string_view>;

class TextInput {
 public:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  // Whether the text has a marker at some place. kUnknown: it ends within what may be one.
  enum class Match { kYes, kNo, kUnknown };
  // The first marker of a text: `which` of them, or kNone, after `position` bytes that contain no
  // part of one.
  struct Hit {
    size_t position = 0;
    size_t which = kNone;
  };

  void Append(std::string_view text) { buffer_.append(text); }
  // No text follows: nothing is the beginning of a marker any more.
  void End() { is_ended_ = true; }
  bool is_ended() const { return is_ended_; }

  std::string_view rest() const { return std::string_view(buffer_).substr(begin_); }
  bool empty() const { return begin_ == buffer_.size(); }
  // Removes bytes at the beginning and returns them. The view is valid until Append or Compact.
  std::string_view Take(size_t num_bytes);
  // Frees the memory of consumed text, where that is most of it.
  void Compact();

  // Whether the text begins with a marker, and with which; of several the longest.
  Match BeginsWith(Markers markers, size_t& which) const { return MatchAt(0, markers, which); }
  Match BeginsWith(std::string_view marker) const;
  // Whether the text has ended within one of the markers, at whose beginning the input stands.
  bool EndsWithin(Markers markers) const;
  // Searches for the markers. The caller consumes the `position` bytes, so that they are not
  // searched again.
  Hit Find(Markers markers) const;

 private:
  Match MatchAt(size_t position, Markers markers, size_t& which) const;

  std::string buffer_;
  size_t begin_ = 0;  // of the text that is not consumed
  bool is_ended_ = false;
};

}  // namespace nereid::tokenizer::parsers
