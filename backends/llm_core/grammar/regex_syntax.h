// The regular expressions of JSON schemas (ECMA-262 with the flag u) and of requests. Held are
// characters, classes, groups, alternatives, greedy and lazy quantifiers, anchors and look-ahead.
// Refused by name: back-references, look-behind, word boundaries, properties (\p). [any thread]
#pragma once

#include <string_view>

#include "backends/llm_core/grammar/code_points.h"
#include "backends/llm_core/grammar/regex_pool.h"
#include "nereid/status.h"

namespace nereid::llm::grammar {

enum class RegexMatch {
  kSearch,  // some part of the text matches, as `pattern` of a schema
  kWhole,   // the whole text matches
};

// The texts that `pattern` accepts, each character spelled as `spelling` says. Errors: INVALID_ARG
// with the offset of a syntax error; UNSUPPORTED with the name of what is not held.
Result<RegexId> ParseRegex(RegexPool& pool, std::string_view pattern, RegexMatch match,
                           Spelling spelling);

}  // namespace nereid::llm::grammar
