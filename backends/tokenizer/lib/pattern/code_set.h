// Sets of code points, for the classes of a regular expression that PCRE2 has no syntax for:
// classes in classes, intersections, complements inside a class. [one thread at a time]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::tokenizer {

class CodeSet {
 public:
  CodeSet() = default;
  // The members of a PCRE2 class, given without its brackets; `ignores_case`: those in the other
  // case too. INVALID_ARG with PCRE2's words.
  static Result<CodeSet> OfClass(std::string_view items, bool ignores_case);

  void Add(const CodeSet& other);
  void Intersect(const CodeSet& other);
  void Complement();

  // A PCRE2 class with just these members.
  std::string ToClass() const;

 private:
  struct Range {
    char32_t first, last;
  };
  std::vector<Range> ranges_;  // in order, with gaps between; without surrogates
};

}  // namespace nereid::tokenizer
