// UTF-8 as RFC 3629 defines it: no overlong form, no surrogate, nothing above U+10FFFF. [any
// thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nereid::http {

// The length of the longest prefix of `text` that is whole, valid UTF-8.
size_t ValidUtf8Prefix(std::string_view text);
inline bool IsUtf8(std::string_view text) {
  return ValidUtf8Prefix(text) == text.size();
}

// `code_point` is a scalar value: below 0x110000 and no surrogate.
void AppendUtf8(std::string& text, uint32_t code_point);

}  // namespace nereid::http
