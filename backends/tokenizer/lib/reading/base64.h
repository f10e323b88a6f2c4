// Base64 as tokenizer files carry bytes. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nereid::tokenizer {

// Appends the bytes of `text`; false when it is not base64. Padding may be absent.
inline bool AppendBase64(std::string_view text, std::string& out) {
  const auto value_of = [](char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
  };
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const int value = value_of(c);
    if (value < 0) return false;
    bits = bits << 6 | static_cast<uint32_t>(value);
    num_bits += 6;
    if (num_bits >= 8) out.push_back(static_cast<char>(bits >> (num_bits -= 8)));
  }
  return true;
}

}  // namespace nereid::tokenizer
