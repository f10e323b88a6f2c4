// See text_input.h.
#include "backends/tokenizer/lib/chat/parsers/text_input.h"

#include <algorithm>
#include <bitset>

namespace nereid::tokenizer::parsers {

std::string_view TextInput::Take(size_t num_bytes) {
  const std::string_view taken = rest().substr(0, num_bytes);
  begin_ += taken.size();
  return taken;
}

void TextInput::Compact() {
  if (begin_ == buffer_.size()) {
    buffer_.clear();
    begin_ = 0;
  } else if (begin_ > buffer_.size() / 2) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
}

TextInput::Match TextInput::BeginsWith(std::string_view marker) const {
  size_t which = kNone;
  return MatchAt(0, Markers(&marker, 1), which);
}

bool TextInput::EndsWithin(Markers markers) const {
  return is_ended_ && !empty() &&
         std::any_of(markers.begin(), markers.end(),
                     [this](std::string_view marker) { return marker.starts_with(rest()); });
}

TextInput::Match TextInput::MatchAt(size_t position, Markers markers, size_t& which) const {
  const std::string_view text = rest().substr(position);
  which = kNone;
  size_t longest = 0, longest_possible = 0;
  for (size_t i = 0; i < markers.size(); ++i) {
    const std::string_view marker = markers[i];
    if (text.starts_with(marker)) {
      if (marker.size() > longest) {
        longest = marker.size();
        which = i;
      }
    } else if (!is_ended_ && marker.starts_with(text)) {
      longest_possible = std::max(longest_possible, marker.size());
    }
  }
  if (longest_possible > longest) {
    which = kNone;
    return Match::kUnknown;
  }
  return longest > 0 ? Match::kYes : Match::kNo;
}

TextInput::Hit TextInput::Find(Markers markers) const {
  std::bitset<256> first_bytes;
  for (const std::string_view marker : markers) {
    first_bytes.set(static_cast<unsigned char>(marker.front()));
  }
  const std::string_view text = rest();
  for (size_t i = 0; i < text.size(); ++i) {
    if (!first_bytes[static_cast<unsigned char>(text[i])]) continue;
    size_t which = kNone;
    if (MatchAt(i, markers, which) != Match::kNo) return {i, which};
  }
  return {text.size(), kNone};
}

}  // namespace nereid::tokenizer::parsers
