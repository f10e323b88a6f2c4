// Texts and integers in a row. StrCat takes whatever a stream takes, at the price of a stream: this
// is for what every load of a model does some dozen times. A character is neither: a text of one is
// what its place means.
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
    using Part = std::remove_cvref_t<decltype(part)>;
    static_assert(!std::same_as<Part, char>, "a char would become a number: give a text of one");
    if constexpr (std::integral<Part>) {
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
