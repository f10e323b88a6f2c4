// The syntax of regular expressions: a pattern becomes a tree of parts. [any thread]
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "backends/llm_core/grammar/code_points.h"
#include "nereid/status.h"

namespace nereid::llm::grammar {

// A part of a pattern. A group is the part inside of it.
struct RegexPart {
  enum class Kind {
    kSet,       // one character of `set`
    kConcat,    // all of `parts`, one after the other; none: the empty text
    kUnion,     // one of `parts`
    kRepeat,    // parts[0], from `min` to `max` times
    kBegin,     // ^
    kEnd,       // $
    kAhead,     // (?=parts[0])
    kNotAhead,  // (?!parts[0])
  };
  Kind kind = Kind::kSet;
  CodePointSet set;
  std::vector<std::unique_ptr<RegexPart>> parts;
  int min = 0, max = 0;    // max: RegexPool::kUnlimited without a limit
  bool has_begin = false;  // contains ^
  bool is_plain = true;    // contains no anchor and no look-ahead
};

// Reads a whole pattern, of at most 64 KiB of UTF-8. Errors: INVALID_ARG with the offset of a
// syntax error; UNSUPPORTED with the name of what cannot be enforced.
Result<std::unique_ptr<RegexPart>> ParsePattern(std::string_view pattern);

// Reads a class `[...]` that begins at `pos`, and moves `pos` behind it. Errors as above.
Result<CodePointSet> ParseClass(std::string_view text, size_t& pos);

}  // namespace nereid::llm::grammar
