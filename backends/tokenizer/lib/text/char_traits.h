// What single normalizers and pre-tokenizers ask of a character, as their reference answers it: the
// Unicode data behind each has an age of its own (tools/tokenizer/generate_normalizer_tables.py).
// [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nereid::tokenizer {

// Bits of TraitsOf.
enum CharTrait : uint8_t {
  kAccent = 1,           // dropped by StripAccents
  kNonspacing = 2,       // dropped by BertNormalizer's strip_accents, after NFD
  kBertControl = 4,      // dropped by BertNormalizer's clean_text
  kBertPunctuation = 8,  // what Punctuation and BertPreTokenizer cut at
};

uint8_t TraitsOf(char32_t c);
bool IsSpaceChar(char32_t c);  // White_Space
// Characters that BertNormalizer puts spaces around.
bool IsCjk(char32_t c);
// Number of the script that UnicodeScripts sees; 0 joins any.
uint8_t ScriptOf(char32_t c);

// Appends the lower case of `c`, which may be two characters.
void AppendLowercase(char32_t c, std::string& out);

// End of the extended grapheme cluster that starts at `begin`; a row of flags counts as one.
size_t GraphemeEnd(std::string_view text, size_t begin);

}  // namespace nereid::tokenizer
