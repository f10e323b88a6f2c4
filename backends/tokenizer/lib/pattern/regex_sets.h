// The sets of characters that Oniguruma's names and escapes stand for, as members of a PCRE2 class.
// [any thread]
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nereid::tokenizer {

inline constexpr std::string_view kSpaceSet =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
inline constexpr std::string_view kHexDigitSet = "0-9A-Fa-f";

// \w of Rust's engines.
std::string RustWordSet();
// \w. Outside a class Oniguruma adds the superscripts and fractions of Latin-1.
std::string WordSet(bool in_class);
// A general category by its short name, such as "Lu".
std::string CategorySet(std::string_view name);
// The property of \p{name} or of [:name:], whose case, spaces, '-' and '_' do not count: a general
// category, a script, or one of POSIX's classes. Nothing where there is no such.
std::optional<std::string> PropertySet(std::string_view name);
std::optional<std::string> PosixSet(std::string_view name);
// [:name:] of Rust's engines: of ASCII alone.
std::optional<std::string> AsciiSet(std::string_view name);

}  // namespace nereid::tokenizer
