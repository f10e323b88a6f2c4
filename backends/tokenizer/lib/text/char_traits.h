// Character properties as individual normalizers and pre-tokenizers of the reference define them.
// Each uses a different Unicode version, so the tables are generated from the reference
// (tools/tokenizer/generate_normalizer_tables.py). [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nereid::tokenizer {

// Bits of the result of TraitsOf.
enum CharTrait : uint8_t {
  kAccent = 1,           // removed by StripAccents
  kNonspacing = 2,       // removed by BertNormalizer's strip_accents, after NFD
  kBertControl = 4,      // removed by BertNormalizer's clean_text
  kBertPunctuation = 8,  // a delimiter of Punctuation and BertPreTokenizer
};

uint8_t TraitsOf(char32_t c);
bool IsSpaceChar(char32_t c);  // the property White_Space
// Whether BertNormalizer puts spaces around `c`.
bool IsCjk(char32_t c);
// Number of the script that UnicodeScripts assigns to `c`; 0 joins any script.
uint8_t ScriptOf(char32_t c);

// Appends the lower case of `c`, which may be two characters.
void AppendLowercase(char32_t c, std::string& out);

// Returns the end of the extended grapheme cluster (UAX #29) at `begin`. A row of flags counts as
// one cluster.
size_t GraphemeEnd(std::string_view text, size_t begin);

}  // namespace nereid::tokenizer
