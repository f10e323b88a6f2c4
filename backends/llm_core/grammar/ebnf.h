// Grammars that are written as rules, in the form that xgrammar, llguidance and llama.cpp's GBNF
// have in common:
//
//   root  ::= "a" | [b-z]+ rule*   # a comment
//   rule  ::= ("," | ";"){1,3} /regular expression/ ;
//
// Rules that do not contain themselves become regular expressions. [any thread]
#pragma once

#include <string_view>

#include "backends/llm_core/grammar/syntax_graph.h"
#include "nereid/status.h"

namespace nereid::llm::grammar {

// Adds the rules to an empty graph; `root` is the rule that texts must fit. Errors: INVALID_ARG
// with the line, UNSUPPORTED with the name of what is not held.
Status AddEbnf(std::string_view text, SyntaxGraph& graph);

}  // namespace nereid::llm::grammar
