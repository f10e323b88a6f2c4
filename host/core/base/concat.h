// Texts and integers in a row. StrCat takes whatever a stream takes, at the price of a stream: this
// is for what every load of a model does some dozen times.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

namespace nereid {

template <typename... Parts>
std::string Concat(const Parts&... parts) {
  std::string text;
  const auto append = [&text](const auto& part) {
    if constexpr (std::integral<std::remove_cvref_t<decltype(part)>>) {
      char digits[24];
      text.append(digits, std::to_chars(digits, digits + sizeof(digits), part).ptr);
    } else {
      text.append(std::string_view(part));
    }
  };
  (append(parts), ...);
  return text;
}

}  // namespace nereid
