// See unicode.h.
#include "backends/tokenizer/lib/text/unicode.h"

#include <algorithm>
#include <map>
#include <vector>

namespace nereid::tokenizer {
namespace {

constexpr uint32_t kClassRuns[] = {
#define UNICODE_CLASS_RUNS
#include "backends/tokenizer/lib/text/unicode_tables.inc"
#undef UNICODE_CLASS_RUNS
};

constexpr uint32_t kCodePoints = 0x110000;

std::string FlatClasses() {
  std::string flat(kCodePoints, '\0');
  for (size_t i = 0; i < std::size(kClassRuns); ++i) {
    const uint32_t begin = kClassRuns[i] >> 4;
    const uint32_t end = i + 1 < std::size(kClassRuns) ? kClassRuns[i + 1] >> 4 : kCodePoints;
    std::fill(flat.begin() + begin, flat.begin() + end, static_cast<char>(kClassRuns[i] & 0x0F));
  }
  return flat;
}

}  // namespace

const UnicodeTables& UnicodeTables::Get() {
  static const UnicodeTables tables;
  return tables;
}

UnicodeTables::UnicodeTables() {
  std::string flat = FlatClasses();
  ForEachNfcActive([&](char32_t begin, char32_t end) {
    for (char32_t c = begin; c < end; ++c) flat[c] = static_cast<char>(flat[c] | 0x10);
  });
  std::map<std::string_view, uint16_t> known;
  for (size_t block = 0; block < block_of_.size(); ++block) {
    const std::string_view content = std::string_view(flat).substr(block << 8, 256);
    const auto [it, added] = known.emplace(content, static_cast<uint16_t>(known.size()));
    if (added) blocks_.append(content);
    block_of_[block] = it->second;
  }
}

bool IsWordChar(char32_t c) {
  constexpr ClassMask kWord =
      kLetter | kMark | MaskOf(CharClass::kNd) | MaskOf(CharClass::kNl) | MaskOf(CharClass::kPc);
  if ((UnicodeTables::Get().Mask(c) & kWord) != 0) return true;
  if (c == 0x200C || c == 0x200D) return true;  // Join_Control
  // Symbols with the property Other_Alphabetic: circled and squared letters.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

}  // namespace nereid::tokenizer
