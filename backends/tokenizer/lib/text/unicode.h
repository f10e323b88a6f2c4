// What the tokenizer asks of Unicode: the class of a code point as patterns see it, and canonical
// composition. The tables follow the versions that the reference libraries use
// (tools/tokenizer/generate_unicode_tables.py); they are unpacked once, on first use. [any thread]
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/text/aligned_text.h"

namespace nereid::tokenizer {

// General categories, folded where no pattern tells them apart. kNumeric17 are numbers that only
// the Digits pre-tokenizer's younger Unicode data knows; patterns see an unassigned code point.
enum class CharClass : uint8_t {
  kOther,
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMark,
  kNd,
  kNl,
  kNo,
  kPc,
  kPunct,
  kSymbol,
  kSpace,
  kNumeric17
};

using ClassMask = uint16_t;
constexpr ClassMask MaskOf(CharClass c) {
  return ClassMask(1u << static_cast<int>(c));
}

inline constexpr ClassMask kMaskLu = MaskOf(CharClass::kLu);
inline constexpr ClassMask kMaskLl = MaskOf(CharClass::kLl);
inline constexpr ClassMask kMaskLt = MaskOf(CharClass::kLt);
inline constexpr ClassMask kMaskLm = MaskOf(CharClass::kLm);
inline constexpr ClassMask kMaskLo = MaskOf(CharClass::kLo);
inline constexpr ClassMask kLetter = kMaskLu | kMaskLl | kMaskLt | kMaskLm | kMaskLo;  // \p{L}
inline constexpr ClassMask kMark = MaskOf(CharClass::kMark);                           // \p{M}
inline constexpr ClassMask kNumber =
    MaskOf(CharClass::kNd) | MaskOf(CharClass::kNl) | MaskOf(CharClass::kNo);            // \p{N}
inline constexpr ClassMask kPunct = MaskOf(CharClass::kPc) | MaskOf(CharClass::kPunct);  // \p{P}
inline constexpr ClassMask kSymbol = MaskOf(CharClass::kSymbol);                         // \p{S}
inline constexpr ClassMask kSpace = MaskOf(CharClass::kSpace);                           // \s

class UnicodeTables {
 public:
  static const UnicodeTables& Get();

  CharClass ClassOf(char32_t c) const {
    return static_cast<CharClass>(blocks_[block_of_[c >> 8] << 8 | (c & 0xFF)] & 0x0F);
  }
  ClassMask Mask(char32_t c) const { return MaskOf(ClassOf(c)); }
  // False when `c` may change, or be changed by, a neighbour under NFC or decomposes by itself.
  bool IsNfcInert(char32_t c) const {
    return (blocks_[block_of_[c >> 8] << 8 | (c & 0xFF)] & 0x10) == 0;
  }

 private:
  UnicodeTables();

  // Two-stage table over code points 0..10FFFF, uniform blocks shared.
  std::array<uint16_t, 0x1100> block_of_;
  std::string blocks_;
};

// \w of Rust's regex crate: decides whether an added token with `single_word` stands alone.
bool IsWordChar(char32_t c);

// Appends the NFC form of `text` (valid UTF-8) to `out`. Linear but for runs of combining marks,
// which are sorted.
void AppendNfc(std::string_view text, std::string& out);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
void AppendNormalForm(std::string_view text, NormalForm form, std::string& out);
// The same, with what becomes of which character.
std::vector<CharChange> NormalFormChanges(std::string_view text, NormalForm form);

}  // namespace nereid::tokenizer
