// DeepSeek V3 and R1: calls with the arguments in a block of code of the language json. DeepSeek
// V3.1: the name and the arguments alone. DeepSeek V3.2 and V4: tags that say whether an argument
// is a string, <｜DSML｜invoke name="f"> and <｜DSML｜parameter name="x" string="true">.
#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/header_calls.h"
#include "backends/tokenizer/lib/chat/parsers/json_text.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"
#include "backends/tokenizer/lib/chat/parsers/tagged_calls.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kDeepSeekMarkers[] = {"<think>",
                                                 "</think>",
                                                 "<｜tool▁calls▁begin｜>",
                                                 "<｜tool▁calls▁end｜>",
                                                 "<｜tool▁call▁begin｜>",
                                                 "<｜tool▁call▁end｜>",
                                                 "<｜tool▁sep｜>"};
constexpr std::string_view kDeepSeekOpens[] = {"<think>"};
constexpr std::string_view kDeepSeekCloses[] = {"</think>"};
constexpr std::string_view kDeepSeekEndsBefore[] = {"<｜tool▁calls▁begin｜>"};
constexpr ReasoningFormat kDeepSeekReasoning = {
    .opens = kDeepSeekOpens, .closes = kDeepSeekCloses, .ends_before = kDeepSeekEndsBefore};
constexpr std::string_view kDeepSeekSeparator = "<｜tool▁sep｜>";
constexpr std::string_view kDeepSeekV3Ends[] = {"```<｜tool▁call▁end｜>", "<｜tool▁call▁end｜>"};

// function<｜tool▁sep｜>name
bool ReadDeepSeekV3Header(std::string_view header, std::string_view& name, std::string_view&) {
  const size_t separator = header.find(kDeepSeekSeparator);
  if (separator == std::string_view::npos) return false;
  name = TrimSpace(header.substr(separator + kDeepSeekSeparator.size()));
  return true;
}

bool ReadDeepSeekV31Header(std::string_view header, std::string_view& name, std::string_view&) {
  name = TrimSpace(header);
  return true;
}

constexpr HeaderFormat kDeepSeekV3Format = {.section_begin = "<｜tool▁calls▁begin｜>",
                                            .section_end = "<｜tool▁calls▁end｜>",
                                            .call_begin = "<｜tool▁call▁begin｜>",
                                            .header_end = "```json",
                                            .call_ends = kDeepSeekV3Ends,
                                            .read_header = ReadDeepSeekV3Header};
constexpr std::string_view kDeepSeekV31Ends[] = {"<｜tool▁call▁end｜>"};
constexpr HeaderFormat kDeepSeekV31Format = {.section_begin = "<｜tool▁calls▁begin｜>",
                                             .section_end = "<｜tool▁calls▁end｜>",
                                             .call_begin = "<｜tool▁call▁begin｜>",
                                             .header_end = kDeepSeekSeparator,
                                             .call_ends = kDeepSeekV31Ends,
                                             .read_header = ReadDeepSeekV31Header};

CallForm DeepSeekV3CallForm(std::string_view) {
  return {.section_begin = "<｜tool▁calls▁begin｜>",
          .call_begin = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
          .arguments_begin = "\n```json\n",
          .call_end = "\n```<｜tool▁call▁end｜>",
          .separator = "\n",
          .section_end = "<｜tool▁calls▁end｜>",
          .notation = JsonWithout({kDeepSeekV31Ends[0]})};
}

CallForm DeepSeekV31CallForm(std::string_view) {
  return {.section_begin = "<｜tool▁calls▁begin｜>",
          .call_begin = "<｜tool▁call▁begin｜>",
          .arguments_begin = std::string(kDeepSeekSeparator),
          .call_end = "<｜tool▁call▁end｜>",
          .section_end = "<｜tool▁calls▁end｜>",
          .notation = JsonWithout({kDeepSeekV31Ends[0]})};
}

template <const HeaderFormat& format>
std::unique_ptr<ChatParser> MakeDeepSeek(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, kDeepSeekReasoning, [](AnswerWriter& writer) {
    return std::make_unique<HeaderCalls>(writer, format);
  });
}

constexpr std::string_view kDsmlMarkers[] = {"<think>", "</think>", "｜DSML｜"};
constexpr TaggedFormat DsmlFormat(std::string_view begin, std::string_view end) {
  return {.begin = begin,
          .end = end,
          .name_begin = "<｜DSML｜invoke name=\"",
          .name_end = ">",
          .key_begin = "<｜DSML｜parameter name=\"",
          .key_end = ">",
          .value_begin = "",
          .value_end = "</｜DSML｜parameter>",
          .call_end = "</｜DSML｜invoke>",
          .type_begin = "\" string=\"",
          .string_type = "true"};
}
constexpr TaggedFormat kDeepSeekV32Format =
    DsmlFormat("<｜DSML｜function_calls>", "</｜DSML｜function_calls>");
constexpr TaggedFormat kDeepSeekV4Format =
    DsmlFormat("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>");

constexpr std::string_view kDsmlEndsBefore[] = {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"};
constexpr ReasoningFormat kDsmlReasoning = {
    .opens = kDeepSeekOpens, .closes = kDeepSeekCloses, .ends_before = kDsmlEndsBefore};

template <const TaggedFormat& format>
std::unique_ptr<ChatParser> MakeDsml(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, kDsmlReasoning, [&](AnswerWriter& writer) {
    return std::make_unique<TaggedCalls>(writer, format, options.tools);
  });
}

template <const TaggedFormat& format>
CallForm DsmlCallForm(std::string_view) {
  return TaggedCallForm(format, {.before_section = "\n\n", .reasoning_end = "</think>"});
}

bool HasDeepSeekCalls(std::string_view source) {
  return Contains(source, "tool▁call▁begin") && Contains(source, kDeepSeekSeparator);
}

}  // namespace

constexpr ParserFamily kDeepSeekV3 = {
    "deepseek_v3",
    "calls with the arguments in ```json, <think> reasoning (DeepSeek V3 and R1)",
    kDeepSeekMarkers,
    [](std::string_view source) { return HasDeepSeekCalls(source) && Contains(source, "```json"); },
    MakeDeepSeek<kDeepSeekV3Format>,
    DeepSeekV3CallForm};

constexpr ParserFamily kDeepSeekV31 = {
    "deepseek_v31",
    "calls with the arguments behind the name, <think> reasoning (DeepSeek V3.1)",
    kDeepSeekMarkers,
    HasDeepSeekCalls,
    MakeDeepSeek<kDeepSeekV31Format>,
    DeepSeekV31CallForm};

constexpr ParserFamily kDeepSeekV32 = {
    "deepseek_v32",
    "DSML tags in function_calls, <think> reasoning (DeepSeek V3.2)",
    kDsmlMarkers,
    [](std::string_view source) {
      return Contains(source, "DSML") && Contains(source, "function_calls>");
    },
    MakeDsml<kDeepSeekV32Format>,
    DsmlCallForm<kDeepSeekV32Format>};

constexpr ParserFamily kDeepSeekV4 = {
    "deepseek_v4",
    "DSML tags in tool_calls, <think> reasoning (DeepSeek V4)",
    kDsmlMarkers,
    [](std::string_view source) { return Contains(source, "DSML"); },
    MakeDsml<kDeepSeekV4Format>,
    DsmlCallForm<kDeepSeekV4Format>};

}  // namespace nereid::tokenizer::parsers
