// See byte_encoding.h. Printable Latin-1 characters represent themselves; the 68 other bytes map to
// U+0100 and the following characters.
#include "backends/tokenizer/lib/text/byte_encoding.h"

#include <array>

#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {
namespace {

struct ByteMap {
  std::array<char32_t, 256> to_char{};
  std::array<int16_t, 0x144> to_byte{};

  ByteMap() {
    to_byte.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
      to_char[b] = printable ? static_cast<char32_t>(b) : next++;
      to_byte[to_char[b]] = static_cast<int16_t>(b);
    }
  }
};

const ByteMap& Map() {
  static const ByteMap map;
  return map;
}

}  // namespace

char32_t ByteToChar(uint8_t byte) {
  return Map().to_char[byte];
}

std::string PrintableForm(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) AppendUtf8(ByteToChar(static_cast<uint8_t>(byte)), text);
  return text;
}

bool AppendBytesOf(std::string_view printable, std::string& out) {
  const ByteMap& map = Map();
  const size_t old_size = out.size();
  for (size_t at = 0; at < printable.size();) {
    const Utf8Char c = CharAt(printable, at);
    at += c.size;
    if (c.code >= map.to_byte.size() || map.to_byte[c.code] < 0) {
      out.resize(old_size);
      return false;
    }
    out.push_back(static_cast<char>(map.to_byte[c.code]));
  }
  return true;
}

std::string FallbackName(uint8_t byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 0xF], '>'};
}

bool AppendBase64(std::string_view text, std::string& out) {
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
