// Phi-4-mini: <|tool_call|>[{"name": "f", "arguments": {}}]<|/tool_call|>, or functools[...].
#include "backends/tokenizer/lib/chat/parsers/block_calls.h"
#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kPhiMarkers[] = {"<think>", "</think>", "<|tool_call|>",
                                            "<|/tool_call|>"};
constexpr std::string_view kPhiBegins[] = {"<|tool_call|>", "functools"};
constexpr std::string_view kPhiEnds[] = {"<|/tool_call|>"};
constexpr BlockFormat kPhiFormat = {
    .begins = kPhiBegins, .ends = kPhiEnds, .has_objects = true, .has_lists = true};

std::unique_ptr<ChatParser> MakePhi(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, ThinkTags(), [&](AnswerWriter& writer) {
    return std::make_unique<BlockCalls>(writer, kPhiFormat, options.tools);
  });
}

}  // namespace

constexpr ParserFamily kPhi = {
    "phi",
    "a list of JSON objects behind <|tool_call|> or functools (Phi-4 and Phi-4-mini)",
    kPhiMarkers,
    [](std::string_view source) {
      return Contains(source, "<|/tool_call|>") || Contains(source, "<|/tool|>");
    },
    MakePhi,
    [](std::string_view source) {
      const bool is_marked = Contains(source, "<|/tool_call|>");
      return JsonCallForm({.section_begin = is_marked ? "<|tool_call|>[" : "functools[",
                           .separator = ", ",
                           .section_end = is_marked ? "]<|/tool_call|>" : "]"});
    }};

}  // namespace nereid::tokenizer::parsers
