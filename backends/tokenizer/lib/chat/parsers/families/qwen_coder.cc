// Qwen3-Coder, Qwen3.5 and later:
// <tool_call><function=f><parameter=x>1</parameter></function></tool_call>, on lines of their own.
// The models sometimes leave out <tool_call>.
#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"
#include "backends/tokenizer/lib/chat/parsers/tagged_calls.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kQwenCoderMarkers[] = {"<think>", "</think>", "<tool_call>",
                                                  "</tool_call>"};
// The models sometimes call within their reasoning.
constexpr std::string_view kQwenCoderOpens[] = {"<think>"};
constexpr std::string_view kQwenCoderCloses[] = {"</think>"};
constexpr std::string_view kQwenCoderEndsBefore[] = {"<tool_call>"};
constexpr ReasoningFormat kQwenCoderReasoning = {
    .opens = kQwenCoderOpens, .closes = kQwenCoderCloses, .ends_before = kQwenCoderEndsBefore};
constexpr TaggedFormat kQwenCoderFormat = {.begin = "<tool_call>",
                                           .end = "</tool_call>",
                                           .name_begin = "<function=",
                                           .name_end = ">",
                                           .key_begin = "<parameter=",
                                           .key_end = ">",
                                           .value_begin = "",
                                           .value_end = "</parameter>",
                                           .call_end = "</function>",
                                           .has_bare_calls = true,
                                           .has_value_lines = true};

std::unique_ptr<ChatParser> MakeQwenCoder(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, kQwenCoderReasoning, [&](AnswerWriter& writer) {
    return std::make_unique<TaggedCalls>(writer, kQwenCoderFormat, options.tools);
  });
}

}  // namespace

constexpr ParserFamily kQwenCoder = {
    "qwen3_coder",
    "<function=...> and <parameter=...> tags, <think> reasoning (Qwen3-Coder)",
    kQwenCoderMarkers,
    [](std::string_view source) {
      return Contains(source, "<function=") && Contains(source, "<parameter=");
    },
    MakeQwenCoder,
    [](std::string_view) { return TaggedCallForm(kQwenCoderFormat, {.has_blocks = true}); }};

}  // namespace nereid::tokenizer::parsers
