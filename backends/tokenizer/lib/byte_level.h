// GPT-2's printable form of bytes: each of the 256 bytes stands for one character of
// U+0021..U+0143. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nereid::tokenizer {

// The character that stands for `byte`.
char32_t ByteToChar(uint8_t byte);

// Appends the bytes that `printable` (valid UTF-8) stands for; false, appending nothing, when one
// of its characters stands for no byte.
bool AppendBytesOf(std::string_view printable, std::string& out);

}  // namespace nereid::tokenizer
