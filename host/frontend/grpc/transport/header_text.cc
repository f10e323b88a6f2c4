// See header_text.h.
#include "host/frontend/grpc/transport/header_text.h"

#include <algorithm>
#include <cstdint>

namespace nereid::grpc {
namespace {

constexpr int64_t kMaxTimeoutCount = 99'999'999;  // larger ones are not distinguished
constexpr size_t kMaxEncodedBytes = 6000;
constexpr char kHexDigits[] = "0123456789ABCDEF";

std::optional<std::chrono::nanoseconds> UnitOf(char letter) {
  using namespace std::chrono_literals;
  switch (letter) {
    case 'H':
      return 1h;
    case 'M':
      return 1min;
    case 'S':
      return 1s;
    case 'm':
      return 1ms;
    case 'u':
      return 1us;
    case 'n':
      return 1ns;
    default:
      return std::nullopt;
  }
}

// A space at either end would be stripped as white space around the header value.
bool IsPlain(char letter, bool is_at_end) {
  return letter >= (is_at_end ? 0x21 : 0x20) && letter <= 0x7e && letter != '%';
}

}  // namespace

std::optional<std::chrono::nanoseconds> ParseTimeout(std::string_view text) {
  text = TrimSpaces(text);
  if (text.empty()) return std::nullopt;
  const auto unit = UnitOf(text.back());
  text = TrimSpaces(text.substr(0, text.size() - 1));
  if (!unit || text.empty()) return std::nullopt;
  int64_t count = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') return std::nullopt;
    count = std::min(count * 10 + (digit - '0'), kMaxTimeoutCount);
  }
  // 99,999,999 hours exceed the range of nanoseconds.
  const int64_t max_count = std::chrono::nanoseconds::max() / *unit;
  return count > max_count ? std::chrono::nanoseconds::max() : *unit * count;
}

std::string PercentEncode(std::string_view text) {
  std::string encoded;
  encoded.reserve(text.size());
  for (size_t i = 0; i < text.size() && encoded.size() < kMaxEncodedBytes; ++i) {
    const char letter = text[i];
    if (IsPlain(letter, i == 0 || i + 1 == text.size())) {
      encoded.push_back(letter);
    } else {
      const auto byte = static_cast<unsigned char>(letter);
      encoded += {'%', kHexDigits[byte >> 4], kHexDigits[byte & 15]};
    }
  }
  return encoded;
}

std::string_view TrimSpaces(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

bool StartsWithIgnoringCase(std::string_view text, std::string_view prefix) {
  if (text.starts_with(prefix)) return true;
  return text.size() >= prefix.size() &&
         std::equal(prefix.begin(), prefix.end(), text.begin(), [](char expected, char letter) {
           return letter == expected || (letter >= 'A' && letter <= 'Z' && letter + 32 == expected);
         });
}

bool ListHas(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    if (TrimSpaces(list.substr(0, comma)) == name) return true;
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
  return false;
}

}  // namespace nereid::grpc
