// Nemotron Nano 2: <TOOLCALL>[{"name": "f", "arguments": {}}]</TOOLCALL>. Nemotron 3 is of the
// family qwen3_coder.
#include "backends/tokenizer/lib/chat/parsers/block_calls.h"
#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kNemotronMarkers[] = {"<think>", "</think>", "<TOOLCALL>",
                                                 "</TOOLCALL>"};
constexpr std::string_view kNemotronBegins[] = {"<TOOLCALL>"};
constexpr std::string_view kNemotronEnds[] = {"</TOOLCALL>"};
constexpr BlockFormat kNemotronFormat = {
    .begins = kNemotronBegins, .ends = kNemotronEnds, .has_objects = true, .has_lists = true};

std::unique_ptr<ChatParser> MakeNemotron(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, ThinkTags(), [&](AnswerWriter& writer) {
    return std::make_unique<BlockCalls>(writer, kNemotronFormat, options.tools);
  });
}

}  // namespace

constexpr ParserFamily kNemotron = {
    "nemotron",
    "a JSON list in <TOOLCALL> tags, <think> reasoning (Nemotron Nano 2)",
    kNemotronMarkers,
    [](std::string_view source) { return Contains(source, "<TOOLCALL>"); },
    MakeNemotron,
    [](std::string_view) {
      return JsonCallForm(
          {.section_begin = "<TOOLCALL>[", .separator = ", ", .section_end = "]</TOOLCALL>"});
    }};

}  // namespace nereid::tokenizer::parsers
