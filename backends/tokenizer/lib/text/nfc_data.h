// The data behind NFC, for nfc.cc, and the set of code points that NFC can touch, for the class
// table of unicode.cc. [any thread]
#pragma once

#include <cstdint>
#include <functional>

namespace nereid::tokenizer {

// Calls `visit` with half-open ranges of code points that decompose, carry a combining class or may
// compose with what stands before them.
void ForEachNfcActive(const std::function<void(char32_t begin, char32_t end)>& visit);

}  // namespace nereid::tokenizer
