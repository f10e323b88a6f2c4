// How tokenizer files write bytes as text: GPT-2's printable form, which maps each of the 256 bytes
// to one character of U+0021..U+0143; the names of byte-fallback tokens; and base64. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nereid::tokenizer {

// Returns the printable character of `byte`.
char32_t ByteToChar(uint8_t byte);

// Returns the printable characters of all `bytes`.
std::string PrintableForm(std::string_view bytes);

// Appends the bytes of a printable form, which must be valid UTF-8. Returns false, and appends
// nothing, if a character represents no byte.
bool AppendBytesOf(std::string_view printable, std::string& out);

// Returns the byte-fallback token of `byte`, such as <0x0A>.
std::string FallbackName(uint8_t byte);

// Appends the bytes of base64 `text`, whose padding is optional. Returns false if it is not base64;
// `out` may then have additional bytes.
bool AppendBase64(std::string_view text, std::string& out);

}  // namespace nereid::tokenizer
