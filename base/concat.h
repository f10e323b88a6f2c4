// Concatenates strings and integers. StrCat accepts everything that a stream accepts, but
// constructs a stream each time. Concat is for code that runs dozens of times in each load of a
// model.
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
    static_assert(!std::same_as<Part, char>, "a char would become a number: pass a string");
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
