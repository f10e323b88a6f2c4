// GLM-4.5 and later: <tool_call>f, then <arg_key>x</arg_key><arg_value>1</arg_value> for each
// argument, then </tool_call>.
#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"
#include "backends/tokenizer/lib/chat/parsers/tagged_calls.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kGlmMarkers[] = {"<think>",      "</think>",    "<tool_call>",
                                            "</tool_call>", "<arg_key>",   "</arg_key>",
                                            "<arg_value>",  "</arg_value>"};
constexpr TaggedFormat kGlmFormat = {.begin = "<tool_call>",
                                     .end = "</tool_call>",
                                     .name_begin = "",
                                     .name_end = "",
                                     .key_begin = "<arg_key>",
                                     .key_end = "</arg_key>",
                                     .value_begin = "<arg_value>",
                                     .value_end = "</arg_value>",
                                     .call_end = ""};

// Since version 4.7 the parts do not stand on lines of their own.
CallForm GlmCallForm(std::string_view source) {
  const bool has_lines = !Contains(source, "</arg_key><arg_value>");
  return TaggedCallForm(kGlmFormat, {.line = has_lines ? "\n" : "",
                                     .has_blocks = true,
                                     .reasoning_end = has_lines ? "</think>\n" : "</think>"});
}

std::unique_ptr<ChatParser> MakeGlm(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, ThinkTags(), [&](AnswerWriter& writer) {
    return std::make_unique<TaggedCalls>(writer, kGlmFormat, options.tools);
  });
}

}  // namespace

constexpr ParserFamily kGlm = {
    "glm",
    "<arg_key> and <arg_value> tags in <tool_call>, <think> reasoning (GLM-4.5 and later)",
    kGlmMarkers,
    [](std::string_view source) { return Contains(source, "<arg_key>"); },
    MakeGlm,
    GlmCallForm};

}  // namespace nereid::tokenizer::parsers
