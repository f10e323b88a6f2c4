// Spellings of JSON in grammars. [any thread]
#pragma once

#include <string>
#include <string_view>

#include "backends/llm_core/grammar/code_points.h"
#include "backends/llm_core/grammar/regex_pool.h"

namespace nereid::llm::grammar {

// All spellings of the JSON string `text`, with quotes. `text` is valid UTF-8.
RegexId SpellJsonString(RegexPool& pool, std::string_view text);
// Any JSON string; with kJson, one without needless escapes.
RegexId AnyJsonString(RegexPool& pool, Spelling spelling);
// All spellings of the string, number or literal of JSON that `spelled` is, behind white space. A
// number has no exponent.
RegexId SpellJsonScalar(RegexPool& pool, std::string_view spelled);
// JSON's numbers without limits, and its integers without fraction and exponent.
RegexId AnyJsonNumber(RegexPool& pool);
RegexId AnyJsonInteger(RegexPool& pool);

}  // namespace nereid::llm::grammar
