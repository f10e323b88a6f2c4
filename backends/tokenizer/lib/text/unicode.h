// Unicode properties that patterns use, and normalization. The tables follow the Unicode versions
// of the reference libraries (tools/tokenizer/generate_unicode_tables.py) and are unpacked on first
// use. [any thread]
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/text/aligned_text.h"

namespace nereid::tokenizer {

// General categories; categories that no pattern distinguishes share a class. kNumeric17 are the
// numbers of Unicode 17, which only the Digits pre-tokenizer knows; for patterns they are
// unassigned.
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

struct CodeRange {
  char32_t first, last;  // both belong to it
};

class UnicodeTables {
 public:
  static const UnicodeTables& Get();

  CharClass ClassOf(char32_t c) const {
    return static_cast<CharClass>(blocks_[block_of_[c >> 8] << 8 | (c & 0xFF)] & 0x0F);
  }
  ClassMask Mask(char32_t c) const { return MaskOf(ClassOf(c)); }
  // False if `c` decomposes under NFC, or may combine with an adjacent character.
  bool IsNfcInert(char32_t c) const {
    return (blocks_[block_of_[c >> 8] << 8 | (c & 0xFF)] & 0x10) == 0;
  }

 private:
  UnicodeTables();

  // Two-stage table of all code points; equal blocks are shared.
  std::array<uint16_t, 0x1100> block_of_;
  std::string blocks_;
};

// Whether `c` matches \w of Rust's regex crate, which decides where `single_word` added tokens
// match.
bool IsWordChar(char32_t c);

// Appends the NFC form of `text` (valid UTF-8) to `out`. Takes linear time, except that runs of
// combining marks are sorted.
void AppendNfc(std::string_view text, std::string& out);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
void AppendNormalForm(std::string_view text, NormalForm form, std::string& out);
// The same, as changes to each character.
std::vector<CharChange> NormalFormChanges(std::string_view text, NormalForm form);

// Calls `visit` with half-open ranges of all code points that decompose, have a combining class or
// may compose with a preceding character.
void ForEachNfcActive(const std::function<void(char32_t begin, char32_t end)>& visit);

}  // namespace nereid::tokenizer
