// UTF-8 primitives. Invalid text is repaired as the Unicode standard recommends and Rust's
// from_utf8_lossy does: each maximal ill-formed subpart becomes one U+FFFD. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nereid::tokenizer {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Returns the size in bytes of the character that starts with `lead`.
inline size_t Utf8Length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

inline bool IsContinuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

struct Utf8Char {
  char32_t code;
  uint32_t size;  // in bytes
};

// Returns the character at `text[at]`. `text` must be valid UTF-8, and a character must start at
// `at`.
inline Utf8Char CharAt(std::string_view text, size_t at) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data() + at);
  if (p[0] < 0x80) return {p[0], 1};
  if (p[0] < 0xE0) return {char32_t((p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu)), 2};
  if (p[0] < 0xF0) {
    return {char32_t((p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu)), 3};
  }
  return {
      char32_t((p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu)),
      4};
}

void AppendUtf8(char32_t code, std::string& out);

// Returns the length of the longest prefix of `bytes` that is valid UTF-8.
size_t ValidPrefix(std::string_view bytes);

inline bool IsValidUtf8(std::string_view bytes) {
  return ValidPrefix(bytes) == bytes.size();
}

// Appends `bytes`, with every maximal ill-formed subpart replaced. Unless `final`, stops at an
// incomplete character at the end. Returns the number of consumed bytes.
size_t AppendLossy(std::string_view bytes, bool final, std::string& out);

// Returns `bytes` if they are valid, else a repaired copy in `buffer`.
std::string_view Sanitize(std::string_view bytes, std::string& buffer);

}  // namespace nereid::tokenizer
