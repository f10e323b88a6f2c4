// Structural tags: texts in which some parts have a given form, such as the calls of tools. [any
// thread]
//
// The older form, of vLLM and TensorRT-LLM: free text in which each trigger begins a structure.
//   {"structures": [{"begin": "<f>", "schema": {...}, "end": "</f>"}], "triggers": ["<f"]}
// The newer one, of xgrammar: {"format": F}, where F is one of
//   {"type": "const_string", "value": "..."}            this text
//   {"type": "json_schema", "json_schema": {...}}       JSON that is valid against the schema
//   {"type": "arguments", "json_schema": {...}, "notation": {...}}     the same, written as models
//                                                       write arguments: see schema_notation.h
//   {"type": "regex", "pattern": "..."}                 a text that matches as a whole
//   {"type": "any_text"}                                any text; in a tag, up to its end
//   {"type": "sequence", "elements": [F, ...]}          one after the other
//   {"type": "or", "elements": [F, ...]}                one of them
//   {"type": "tag", "begin": "...", "content": F, "end": "..."}
//   {"type": "triggered_tags", "triggers": [...], "tags": [tag, ...]}   free text with tags
//   {"type": "tags_with_separator", "tags": [tag, ...], "separator": "..."}
// The last two take "at_least_one" (then a tag comes first) and "stop_after_first". Beside
// "format", "special_tokens": true says that texts, beginnings, ends and separators of tags are
// written with the special tokens whose names they contain, which a reader of the plain text does
// not see.
#pragma once

#include <memory>
#include <string_view>

#include "backends/llm_core/grammar/grammar.h"
#include "nereid/status.h"

namespace nereid::llm::grammar {

// Errors: INVALID_ARG for what is malformed or too large, UNSUPPORTED for what is not held; with
// the path in the tag.
Result<std::shared_ptr<const Grammar>> FromStructuralTag(
    std::string_view tag, std::shared_ptr<const Vocabulary> vocabulary,
    const GrammarOptions& options = {});

}  // namespace nereid::llm::grammar
