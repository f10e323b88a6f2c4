// Decodes by the ranges of the second byte, with a fast path for ASCII.
#include "host/frontend/http/json/utf8.h"

#include <cstring>

namespace nereid::http {
namespace {

bool IsBetween(unsigned char c, unsigned char low, unsigned char high) {
  return c >= low && c <= high;
}

// Returns the length of the sequence at `p`, which has `left` bytes, or 0 if it is invalid.
size_t SequenceLength(const unsigned char* p, size_t left) {
  const auto is_tail = [&](size_t i) { return i < left && IsBetween(p[i], 0x80, 0xbf); };
  if (p[0] < 0x80) return 1;
  if (IsBetween(p[0], 0xc2, 0xdf)) return is_tail(1) ? 2 : 0;
  if (IsBetween(p[0], 0xe0, 0xef)) {
    if (!is_tail(1) || !is_tail(2)) return 0;
    if (p[0] == 0xe0 && p[1] < 0xa0) return 0;
    if (p[0] == 0xed && p[1] > 0x9f) return 0;
    return 3;
  }
  if (IsBetween(p[0], 0xf0, 0xf4)) {
    if (!is_tail(1) || !is_tail(2) || !is_tail(3)) return 0;
    if (p[0] == 0xf0 && p[1] < 0x90) return 0;
    if (p[0] == 0xf4 && p[1] > 0x8f) return 0;
    return 4;
  }
  return 0;
}

}  // namespace

size_t ValidUtf8Prefix(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight;
    while (at + 8 <= text.size()) {
      std::memcpy(&eight, bytes + at, 8);
      if (eight & 0x8080808080808080u) break;
      at += 8;
    }
    if (at == text.size()) break;
    const size_t length = SequenceLength(bytes + at, text.size() - at);
    if (length == 0) break;
    at += length;
  }
  return at;
}

void AppendUtf8(std::string& text, uint32_t code_point) {
  const auto tail = [&](int shift) {
    text += static_cast<char>(0x80 | ((code_point >> shift) & 0x3f));
  };
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    text += static_cast<char>(0xc0 | (code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    text += static_cast<char>(0xe0 | (code_point >> 12));
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xf0 | (code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace nereid::http
