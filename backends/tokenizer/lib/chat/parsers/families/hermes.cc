// Hermes, Qwen2.5, Qwen3 and many others: <tool_call>{"name": "f", "arguments": {}}</tool_call>.
#include "backends/tokenizer/lib/chat/parsers/block_calls.h"
#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kHermesMarkers[] = {"<think>", "</think>", "<tool_call>",
                                               "</tool_call>"};
constexpr std::string_view kHermesBegins[] = {"<tool_call>"};
constexpr std::string_view kHermesEnds[] = {"</tool_call>"};
constexpr BlockFormat kHermesFormat = {
    .begins = kHermesBegins, .ends = kHermesEnds, .has_objects = true, .has_lists = true};

std::unique_ptr<ChatParser> MakeHermes(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, ThinkTags(), [&](AnswerWriter& writer) {
    return std::make_unique<BlockCalls>(writer, kHermesFormat, options.tools);
  });
}

}  // namespace

constexpr ParserFamily kHermes = {
    "hermes",
    "JSON in <tool_call> tags, <think> reasoning (Hermes, Qwen2.5, Qwen3)",
    kHermesMarkers,
    [](std::string_view source) { return Contains(source, "<tool_call>"); },
    MakeHermes,
    [](std::string_view) {
      return JsonCallForm(
          {.call_begin = "<tool_call>\n", .call_end = "\n</tool_call>", .separator = "\n"});
    }};

}  // namespace nereid::tokenizer::parsers
