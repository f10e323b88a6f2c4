// Granite: <|tool_call|>[{"name": "f", "arguments": {}}] of version 3, JSON in <tool_call> tags of
// version 4, <function_call> of version 20B; reasoning in words (3.2) or in tags (3.3).
#include "backends/tokenizer/lib/chat/parsers/block_calls.h"
#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kGraniteMarkers[] = {"<think>",       "</think>",       "<response>",
                                                "</response>",   "<tool_call>",    "</tool_call>",
                                                "<|tool_call|>", "<function_call>"};
constexpr std::string_view kGraniteOpens[] = {
    "<think>", "Here is my thought process:", "Here's my thought process:"};
constexpr std::string_view kGraniteCloses[] = {"</think>",
                                               "Here is my response:", "Here's my response:"};
constexpr std::string_view kGraniteWrappers[] = {"<response>", "</response>"};
constexpr ReasoningFormat kGraniteReasoning = {
    .opens = kGraniteOpens, .closes = kGraniteCloses, .wrappers = kGraniteWrappers};
constexpr std::string_view kGraniteBegins[] = {"<|tool_call|>", "<tool_call>", "<function_call>"};
constexpr std::string_view kGraniteEnds[] = {"</tool_call>"};
constexpr BlockFormat kGraniteFormat = {
    .begins = kGraniteBegins, .ends = kGraniteEnds, .has_objects = true, .has_lists = true};

CallForm GraniteCallForm(std::string_view source) {
  JsonCallText text{.section_begin = "<|tool_call|>[", .separator = ", ", .section_end = "]"};
  if (Contains(source, "<tool_call>")) {
    text = {.call_begin = "<tool_call>\n", .call_end = "\n</tool_call>", .separator = "\n"};
  } else if (Contains(source, "<function_call>")) {
    text = {.call_begin = "<function_call> ", .separator = " "};
  }
  return JsonCallForm(text);
}

std::unique_ptr<ChatParser> MakeGranite(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, kGraniteReasoning, [&](AnswerWriter& writer) {
    return std::make_unique<BlockCalls>(writer, kGraniteFormat, options.tools);
  });
}

}  // namespace

constexpr ParserFamily kGranite = {
    "granite",
    "JSON behind <|tool_call|> or in <tool_call> tags, its own reasoning (Granite)",
    kGraniteMarkers,
    [](std::string_view source) { return Contains(source, "<|start_of_role|>"); },
    MakeGranite,
    GraniteCallForm};

}  // namespace nereid::tokenizer::parsers
