// Kimi K2: calls whose header is the id, functions.NAME:INDEX.
#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/header_calls.h"
#include "backends/tokenizer/lib/chat/parsers/json_text.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kKimiMarkers[] = {"<think>",
                                             "</think>",
                                             "<|tool_calls_section_begin|>",
                                             "<|tool_calls_section_end|>",
                                             "<|tool_call_begin|>",
                                             "<|tool_call_argument_begin|>",
                                             "<|tool_call_end|>"};
constexpr std::string_view kKimiOpens[] = {"<think>"};
constexpr std::string_view kKimiCloses[] = {"</think>"};
constexpr std::string_view kKimiEndsBefore[] = {"<|tool_calls_section_begin|>"};
constexpr ReasoningFormat kKimiReasoning = {
    .opens = kKimiOpens, .closes = kKimiCloses, .ends_before = kKimiEndsBefore};
constexpr std::string_view kKimiEnds[] = {"<|tool_call_end|>"};

bool ReadKimiHeader(std::string_view header, std::string_view& name, std::string_view& id) {
  constexpr std::string_view kPrefix = "functions.";
  id = TrimSpace(header);
  name = id;
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  const size_t colon = name.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == name.size()) return false;
  if (name.find_first_not_of("0123456789", colon + 1) != std::string_view::npos) return false;
  name = name.substr(0, colon);
  return true;
}

constexpr HeaderFormat kKimiFormat = {.section_begin = "<|tool_calls_section_begin|>",
                                      .section_end = "<|tool_calls_section_end|>",
                                      .call_begin = "<|tool_call_begin|>",
                                      .header_end = "<|tool_call_argument_begin|>",
                                      .call_ends = kKimiEnds,
                                      .read_header = ReadKimiHeader};

std::unique_ptr<ChatParser> MakeKimi(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, kKimiReasoning, [](AnswerWriter& writer) {
    return std::make_unique<HeaderCalls>(writer, kKimiFormat);
  });
}

}  // namespace

constexpr ParserFamily kKimi = {
    "kimi", "calls named functions.NAME:INDEX, <think> reasoning (Kimi K2)", kKimiMarkers,
    [](std::string_view source) {
      return Contains(source, "<|tool_call_argument_begin|>") || Contains(source, "<|im_middle|>");
    },
    MakeKimi};

}  // namespace nereid::tokenizer::parsers
