// Kimi K2: calls whose header is the id, functions.NAME:INDEX. Kimi K3: elements between <|open|>,
// <|sep|> and <|close|>, with the type of each argument.
#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/header_calls.h"
#include "backends/tokenizer/lib/chat/parsers/json_text.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"
#include "backends/tokenizer/lib/chat/parsers/tagged_calls.h"

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
constexpr std::string_view kKimiEndsBefore[] = {"<|tool_calls_section_begin|>",
                                                "<|tool_call_begin|>"};
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

// The index of a call is part of its id, which no second call may have.
CallForm KimiCallForm(std::string_view) {
  return {.section_begin = "<|tool_calls_section_begin|>",
          .call_begin = "<|tool_call_begin|>functions.",
          .arguments_begin = ":0<|tool_call_argument_begin|>",
          .call_end = "<|tool_call_end|>",
          .section_end = "<|tool_calls_section_end|>",
          .has_one_call = true,
          .notation = JsonWithout({kKimiEnds[0]})};
}

constexpr std::string_view kKimiK3Markers[] = {"<|open|>", "<|close|>", "<|sep|>"};
constexpr std::string_view kKimiK3Opens[] = {"<|open|>think<|sep|>"};
constexpr std::string_view kKimiK3Closes[] = {"<|close|>think<|sep|>"};
constexpr std::string_view kKimiK3EndsBefore[] = {"<|open|>response<|sep|>",
                                                  "<|open|>tools<|sep|>"};
constexpr std::string_view kKimiK3Wrappers[] = {
    "<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"};
constexpr ReasoningFormat kKimiK3Reasoning = {.opens = kKimiK3Opens,
                                              .closes = kKimiK3Closes,
                                              .ends_before = kKimiK3EndsBefore,
                                              .wrappers = kKimiK3Wrappers};
constexpr TaggedFormat kKimiK3Format = {.begin = "<|open|>tools<|sep|>",
                                        .end = "<|close|>tools<|sep|>",
                                        .name_begin = "<|open|>call tool=\"",
                                        .name_end = "<|sep|>",
                                        .key_begin = "<|open|>argument key=\"",
                                        .key_end = "<|sep|>",
                                        .value_begin = "",
                                        .value_end = "<|close|>argument<|sep|>",
                                        .call_end = "<|close|>call<|sep|>",
                                        .type_begin = "\" type=\"",
                                        .string_type = "string",
                                        .has_entities = true};

// A response without a text stands before the calls. Calls are numbered.
CallForm KimiK3CallForm(std::string_view) {
  return TaggedCallForm(kKimiK3Format,
                        {.line = "",
                         .name_attributes = " index=\"1\"",
                         .before_section = "<|open|>response<|sep|><|close|>response<|sep|>",
                         .reasoning_end = kKimiK3Closes[0],
                         .has_one_call = true});
}

std::unique_ptr<ChatParser> MakeKimiK3(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, kKimiK3Reasoning, [&](AnswerWriter& writer) {
    return std::make_unique<TaggedCalls>(writer, kKimiK3Format, options.tools);
  });
}

}  // namespace

constexpr ParserFamily kKimiK3 = {
    "kimi_k3",
    "elements between <|open|> and <|close|>, think elements as reasoning (Kimi K3)",
    kKimiK3Markers,
    [](std::string_view source) {
      return Contains(source, "<|open|>") && Contains(source, "<|close|>");
    },
    MakeKimiK3,
    KimiK3CallForm,
    {"<|open|>think<|sep|>", "<|close|>think<|sep|>"}};

constexpr ParserFamily kKimi = {"kimi",
                                "calls named functions.NAME:INDEX, <think> reasoning (Kimi K2)",
                                kKimiMarkers,
                                [](std::string_view source) {
                                  return Contains(source, "<|tool_call_argument_begin|>") ||
                                         Contains(source, "<|im_middle|>");
                                },
                                MakeKimi,
                                KimiCallForm};

}  // namespace nereid::tokenizer::parsers
