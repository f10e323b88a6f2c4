// See utf8.h. The well-formed byte sequences are those of table 3-7 of the Unicode standard.
#include "backends/tokenizer/lib/text/utf8.h"

#include <cstring>

namespace nereid::tokenizer {
namespace {

enum class SequenceState { kComplete, kIllFormed, kIncomplete };

struct Utf8Sequence {
  SequenceState state;
  size_t size;  // of the character, or of the maximal subpart
};

// Length of a sequence and range of its second byte, as the first byte determines them.
struct LeadByteRule {
  unsigned char size, second_low, second_high;
};

LeadByteRule LeadByteRuleOf(unsigned char lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

Utf8Sequence InspectSequence(const unsigned char* p, size_t available) {
  if (p[0] < 0x80) return {SequenceState::kComplete, 1};
  const LeadByteRule rule = LeadByteRuleOf(p[0]);
  if (rule.size == 0) return {SequenceState::kIllFormed, 1};
  if (available < 2) return {SequenceState::kIncomplete, 1};
  if (p[1] < rule.second_low || p[1] > rule.second_high) return {SequenceState::kIllFormed, 1};
  for (size_t i = 2; i < rule.size; ++i) {
    if (i == available) return {SequenceState::kIncomplete, i};
    if ((p[i] & 0xC0) != 0x80) return {SequenceState::kIllFormed, i};
  }
  return {SequenceState::kComplete, rule.size};
}

}  // namespace

void AppendUtf8(char32_t code, std::string& out) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xC0 | code >> 6));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | code >> 12));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | code >> 18));
    out.push_back(static_cast<char>(0x80 | (code >> 12 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  }
}

size_t ValidPrefix(std::string_view bytes) {
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t at = 0;
  while (at < bytes.size()) {
    if (p[at] < 0x80) {
      uint64_t word;
      while (at + sizeof(word) <= bytes.size()) {
        std::memcpy(&word, p + at, sizeof(word));
        if ((word & 0x8080808080808080u) != 0) break;
        at += sizeof(word);
      }
      while (at < bytes.size() && p[at] < 0x80) ++at;
      continue;
    }
    const Utf8Sequence sequence = InspectSequence(p + at, bytes.size() - at);
    if (sequence.state != SequenceState::kComplete) return at;
    at += sequence.size;
  }
  return at;
}

size_t AppendLossy(std::string_view bytes, bool final, std::string& out) {
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t at = 0;
  while (true) {
    const size_t valid = ValidPrefix(bytes.substr(at));
    out.append(bytes, at, valid);
    at += valid;
    if (at == bytes.size()) return at;
    const Utf8Sequence sequence = InspectSequence(p + at, bytes.size() - at);
    if (sequence.state == SequenceState::kIncomplete && !final) return at;
    out.append(kReplacement);
    at += sequence.size;
  }
}

std::string_view Sanitize(std::string_view bytes, std::string& buffer) {
  if (IsValidUtf8(bytes)) return bytes;
  buffer.clear();
  AppendLossy(bytes, /*final=*/true, buffer);
  return buffer;
}

}  // namespace nereid::tokenizer
