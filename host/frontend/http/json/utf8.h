// UTF-8 as defined by RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. [any
// thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nereid::http {

// Returns the length of the longest valid prefix of `text`.
size_t ValidUtf8Prefix(std::string_view text);
inline bool IsUtf8(std::string_view text) {
  return ValidUtf8Prefix(text) == text.size();
}

// `code_point` is a scalar value: below 0x110000 and not a surrogate.
void AppendUtf8(std::string& text, uint32_t code_point);

}  // namespace nereid::http
