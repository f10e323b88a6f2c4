// Character sets for the translation of patterns to PCRE2: sets of code points, and the members of
// a PCRE2 class that names and escapes denote.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::tokenizer {

// A set of code points, for character classes of a regular expression that PCRE2 has no syntax for:
// nested classes, intersections, and complements inside a class.
class CodePointSet {
 public:
  CodePointSet() = default;
  // Returns the members of a PCRE2 class. `items` excludes the brackets. With `ignores_case` the
  // other-case forms are members, too. INVALID_ARG contains PCRE2's message.
  static Result<CodePointSet> OfClass(std::string_view items, bool ignores_case);

  void Add(const CodePointSet& other);
  void Intersect(const CodePointSet& other);
  void Complement();

  // Returns a PCRE2 class with exactly these members.
  std::string ToClass() const;

 private:
  struct Range {
    char32_t first, last;
  };
  std::vector<Range> ranges_;  // sorted, disjoint and not adjacent; without surrogates
};

// Members of a PCRE2 class for the character sets that names and escapes of the two regex dialects
// denote.
inline constexpr std::string_view kSpaceSet =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
inline constexpr std::string_view kHexDigitSet = "0-9A-Fa-f";

// \w of Rust's regex engines.
std::string RustWordSet();
// \w of Oniguruma, which outside a class adds the superscripts and fractions of Latin-1.
std::string WordSet(bool in_class);
// The general category with this short name, such as "Lu".
std::string CategorySet(std::string_view name);
// The property of \p{name} or [:name:]: a general category, a script or a POSIX class. Case,
// spaces, '-' and '_' are ignored. Returns nothing if there is no such property.
std::optional<std::string> PropertySet(std::string_view name);
std::optional<std::string> PosixSet(std::string_view name);
// [:name:] of Rust's regex engines, which is limited to ASCII.
std::optional<std::string> AsciiSet(std::string_view name);

}  // namespace nereid::tokenizer
