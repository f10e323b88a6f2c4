// Six bits per character.
#include "host/frontend/http/bodies/base64.h"

#include <cstdint>

namespace nereid::http {
namespace {

// Some encoders insert line breaks.
bool IsLineEnd(char c) {
  return c == '\n' || c == '\r';
}

int ValueOf(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

}  // namespace

std::optional<std::string> DecodeBase64(std::string_view text) {
  while (!text.empty() && (IsLineEnd(text.back()) || text.back() == '=')) text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    if (IsLineEnd(c)) continue;
    const int value = ValueOf(c);
    if (value < 0) return std::nullopt;
    bits = (bits << 6 | static_cast<uint32_t>(value)) & 0xffffff;
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      bytes += static_cast<char>(bits >> num_bits & 0xff);
    }
  }
  if (num_bits == 6) return std::nullopt;  // one remaining character does not encode a byte
  return bytes;
}

}  // namespace nereid::http
