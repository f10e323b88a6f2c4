// Turns a JSON schema into a grammar: drafts 4 to 2020-12. [any thread]
#pragma once

#include <string_view>

#include "backends/llm_core/grammar/schema_notation.h"
#include "backends/llm_core/grammar/syntax_graph.h"
#include "nereid/status.h"

namespace nereid::llm::grammar {

// Adds the rules of a schema to a graph, and returns the one that reads a whole value: the root if
// the graph was empty. A text of the rule is a JSON text that is valid
// against the schema, and:
// - properties come in the order of the schema, then other required ones, then additional ones, and
//   no name occurs twice;
// - strings and names have no escapes that JSON does not need, except for characters outside of
//   ASCII; strings without pattern, format or excluded values may have any;
// - numbers with limits have no exponent, integers neither fraction nor exponent;
// - white space stands only before tokens, at most `max_whitespace` bytes in a row (-1: no limit).
// Every valid JSON value has such a text. With another notation than JSON's, a reader of the
// notation reads a valid value from each text, but some valid values may have no text. Errors:
// INVALID_ARG for what is malformed or too complex; UNSUPPORTED for keywords that cannot be
// enforced, with path, keyword and reason.
Result<RuleId> AddJsonSchema(std::string_view schema, int max_whitespace, SyntaxGraph& graph,
                             const SchemaNotation& notation = {});

}  // namespace nereid::llm::grammar
