// LFM2 and LFM2.5: <|tool_call_start|>[f(x=1), g()]<|tool_call_end|>.
#include "backends/tokenizer/lib/chat/parsers/block_calls.h"
#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kLfmMarkers[] = {"<think>", "</think>", "<|tool_call_start|>",
                                            "<|tool_call_end|>"};
constexpr std::string_view kLfmBegins[] = {"<|tool_call_start|>"};
constexpr std::string_view kLfmEnds[] = {"<|tool_call_end|>"};
constexpr BlockFormat kLfmFormat = {
    .begins = kLfmBegins, .ends = kLfmEnds, .has_python_lists = true, .has_python_calls = true};

std::unique_ptr<ChatParser> MakeLfm(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, ThinkTags(), [&](AnswerWriter& writer) {
    return std::make_unique<BlockCalls>(writer, kLfmFormat, options.tools);
  });
}

}  // namespace

constexpr ParserFamily kLfm = {
    "lfm2",      "Python calls behind <|tool_call_start|>, <think> reasoning (LFM2)",
    kLfmMarkers, [](std::string_view source) { return Contains(source, "<|tool_call_start|>"); },
    MakeLfm,     [](std::string_view) { return PythonCallForm(kLfmBegins[0], kLfmEnds[0]); }};

}  // namespace nereid::tokenizer::parsers
