// Hunyuan 3: <tool_call:opensource>f<tool_sep:opensource>, then a tag for the name and one for the
// value of each argument.
#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"
#include "backends/tokenizer/lib/chat/parsers/tagged_calls.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kHunyuanMarkers[] = {
    "<think:opensource>",       "</think:opensource>",    "<tool_calls:opensource>",
    "</tool_calls:opensource>", "<tool_call:opensource>", "</tool_call:opensource>",
    "<tool_sep:opensource>",    "<arg_key:opensource>",   "</arg_key:opensource>",
    "<arg_value:opensource>",   "</arg_value:opensource>"};
constexpr std::string_view kHunyuanOpens[] = {"<think:opensource>"};
constexpr std::string_view kHunyuanCloses[] = {"</think:opensource>"};
constexpr ReasoningFormat kHunyuanReasoning = {kHunyuanOpens, kHunyuanCloses};
constexpr TaggedFormat kHunyuanFormat = {.begin = "<tool_calls:opensource>",
                                         .end = "</tool_calls:opensource>",
                                         .name_begin = "<tool_call:opensource>",
                                         .name_end = "<tool_sep:opensource>",
                                         .key_begin = "<arg_key:opensource>",
                                         .key_end = "</arg_key:opensource>",
                                         .value_begin = "<arg_value:opensource>",
                                         .value_end = "</arg_value:opensource>",
                                         .call_end = "</tool_call:opensource>"};

std::unique_ptr<ChatParser> MakeHunyuan(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, kHunyuanReasoning, [&](AnswerWriter& writer) {
    return std::make_unique<TaggedCalls>(writer, kHunyuanFormat, options.tools);
  });
}

}  // namespace

constexpr ParserFamily kHunyuan = {
    "hunyuan",
    "tags of the suffix :opensource for names and values, <think:opensource> reasoning (Hunyuan 3)",
    kHunyuanMarkers,
    [](std::string_view source) { return Contains(source, ":opensource"); },
    MakeHunyuan,
    [](std::string_view) {
      return TaggedCallForm(kHunyuanFormat, {.reasoning_end = "</think:opensource>"});
    },
    {"<think:opensource>", "</think:opensource>"}};

}  // namespace nereid::tokenizer::parsers
