#include "host/frontend/tracing/span_ids.h"

#include <cstdint>
#include <random>

namespace nereid {
namespace {

std::string HexDigits(size_t count) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  while (text.size() < count) {
    for (uint64_t bits = random(), i = 0; i < 16 && text.size() < count; ++i, bits >>= 4) {
      text += kDigits[bits & 15];
    }
  }
  text.back() = '1';  // an id of only zeros is invalid
  return text;
}

bool IsId(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
         text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

std::string NewTraceId() {
  return HexDigits(32);
}
std::string NewSpanId() {
  return HexDigits(16);
}

std::optional<TraceParent> ParseTraceParent(std::string_view header) {
  if (header.size() < 55 || header[2] != '-' || header[35] != '-' || header[52] != '-') {
    return std::nullopt;
  }
  const std::string_view trace_id = header.substr(3, 32);
  const std::string_view span_id = header.substr(36, 16);
  if (header.substr(0, 2) == "ff" || !IsId(trace_id) || !IsId(span_id)) return std::nullopt;
  return TraceParent{std::string(trace_id), std::string(span_id)};
}

std::string FormatTraceParent(const TraceParent& parent) {
  return "00-" + parent.trace_id + "-" + parent.span_id + "-01";
}

}  // namespace nereid
