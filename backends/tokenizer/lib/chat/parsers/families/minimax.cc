// MiniMax M2: <minimax:tool_call> with <invoke name="f"> and <parameter name="x">1</parameter>.
// MiniMax M1: <tool_calls> with one JSON object for each call.
#include "backends/tokenizer/lib/chat/parsers/block_calls.h"
#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"
#include "backends/tokenizer/lib/chat/parsers/tagged_calls.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kMiniMaxMarkers[] = {"<think>", "</think>", "<minimax:tool_call>",
                                                "</minimax:tool_call>"};
constexpr TaggedFormat kMiniMaxFormat = {.begin = "<minimax:tool_call>",
                                         .end = "</minimax:tool_call>",
                                         .name_begin = "<invoke name=\"",
                                         .name_end = "\">",
                                         .key_begin = "<parameter name=\"",
                                         .key_end = "\">",
                                         .value_begin = "",
                                         .value_end = "</parameter>",
                                         .call_end = "</invoke>"};

std::unique_ptr<ChatParser> MakeMiniMax(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, ThinkTags(), [&](AnswerWriter& writer) {
    return std::make_unique<TaggedCalls>(writer, kMiniMaxFormat, options.tools);
  });
}

constexpr std::string_view kMiniMaxM1Markers[] = {"<think>", "</think>", "<tool_calls>",
                                                  "</tool_calls>"};
constexpr std::string_view kMiniMaxM1Begins[] = {"<tool_calls>"};
constexpr std::string_view kMiniMaxM1Ends[] = {"</tool_calls>"};
constexpr BlockFormat kMiniMaxM1Format = {
    .begins = kMiniMaxM1Begins, .ends = kMiniMaxM1Ends, .has_objects = true, .has_lists = true};

std::unique_ptr<ChatParser> MakeMiniMaxM1(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, ThinkTags(), [&](AnswerWriter& writer) {
    return std::make_unique<BlockCalls>(writer, kMiniMaxM1Format, options.tools);
  });
}

}  // namespace

constexpr ParserFamily kMiniMax = {
    "minimax",       "<invoke> and <parameter> tags, <think> reasoning (MiniMax M2)",
    kMiniMaxMarkers, [](std::string_view source) { return Contains(source, "minimax:tool_call>"); },
    MakeMiniMax,     [](std::string_view) { return TaggedCallForm(kMiniMaxFormat, {}); }};

constexpr ParserFamily kMiniMaxM1 = {
    "minimax_m1",
    "JSON objects in <tool_calls> tags, <think> reasoning (MiniMax M1)",
    kMiniMaxM1Markers,
    [](std::string_view source) { return Contains(source, "<tool_calls>"); },
    MakeMiniMaxM1,
    [](std::string_view) {
      return JsonCallForm(
          {.section_begin = "<tool_calls>\n", .separator = "\n", .section_end = "\n</tool_calls>"});
    }};

}  // namespace nereid::tokenizer::parsers
