// Gemma 3: Python calls or JSON in a block of code of the language tool_code.
#include "backends/tokenizer/lib/chat/parsers/block_calls.h"
#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kGemmaBegins[] = {"```tool_code", "```tool_call"};
constexpr std::string_view kGemmaEnds[] = {"```"};
constexpr BlockFormat kGemmaFormat = {.begins = kGemmaBegins,
                                      .ends = kGemmaEnds,
                                      .opens_answer = true,
                                      .has_objects = true,
                                      .has_lists = true,
                                      .has_python_lists = true,
                                      .has_python_calls = true};

std::unique_ptr<ChatParser> MakeGemma(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, ThinkTags(), [&](AnswerWriter& writer) {
    return std::make_unique<BlockCalls>(writer, kGemmaFormat, options.tools);
  });
}

}  // namespace

constexpr ParserFamily kGemma = {
    "gemma",
    "Python calls or JSON in a tool_code block, or an answer of them (Gemma 3)",
    {},
    [](std::string_view source) { return Contains(source, "<start_of_turn>"); },
    MakeGemma,
    [](std::string_view) {
      return JsonCallForm({.arguments = "parameters", .has_one_call = true});
    }};

}  // namespace nereid::tokenizer::parsers
