// How vocabularies spell single bytes: GPT-2's printable form, in which each of the 256 bytes is
// one character of U+0021..U+0143, and the names of byte fallback. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nereid::tokenizer {

// The character that stands for `byte`.
char32_t ByteToChar(uint8_t byte);

// `bytes`, each by its character.
std::string PrintableForm(std::string_view bytes);

// Appends the bytes that `printable` (valid UTF-8) stands for; false, appending nothing, when one
// of its characters stands for no byte.
bool AppendBytesOf(std::string_view printable, std::string& out);

// The token that stands for `byte` under byte fallback: <0x0A>.
std::string FallbackName(uint8_t byte);

}  // namespace nereid::tokenizer
