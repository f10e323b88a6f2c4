// Parses answers in tests: whole, and cut at every place.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/chat/parsers/chat_parser.h"
#include "backends/tokenizer/lib/chat/parsers/parser_family.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {

inline constexpr char kTools[] = R"([
  {"type": "function", "function": {"name": "get_weather", "description": "The weather.",
    "parameters": {"type": "object", "required": ["city"], "properties": {
      "city": {"type": "string", "description": "c"}, "days": {"type": "integer", "description": "d"},
      "exact": {"type": "boolean", "description": "e"}, "zip": {"type": "string", "description": "z"},
      "tags": {"type": "array", "items": {"type": "string"}, "description": "t"},
      "place": {"type": "object", "description": "p"}, "code": {"type": "string", "description": "x"}}}}},
  {"type": "function", "function": {"name": "now", "description": "The time.",
    "parameters": {"type": "object", "properties": {}}}}])";

struct Call {
  std::string name, arguments, id;
};

struct Answer {
  std::string reasoning, content;
  std::vector<Call> calls;

  // For comparisons: arguments as texts.
  std::string Show() const {
    std::string text = "reasoning: " + reasoning + "\ncontent: " + content + "\n";
    for (const Call& call : calls) {
      text += "call: ";
      text += call.id + " " + call.name + " " + call.arguments + "\n";
    }
    return text;
  }
};

// Adds up deltas as a client does.
inline void Add(const AnswerDelta& delta, Answer& answer) {
  answer.reasoning += delta.reasoning;
  answer.content += delta.content;
  for (const ToolCallDelta& call : delta.tool_calls) {
    if (!call.name.empty()) {
      ASSERT_EQ(call.index, answer.calls.size());
      ASSERT_FALSE(call.id.empty());
      answer.calls.push_back({call.name, "", call.id});
    }
    ASSERT_LT(call.index, answer.calls.size());
    answer.calls[call.index].arguments += call.arguments;
  }
}

inline ParserOptions Options(std::string_view prompt_end = "", const char* tools = kTools) {
  auto schemas = ToolSchemas::Parse(tools);
  EXPECT_TRUE(schemas.ok()) << schemas.status().message();
  return {.prompt_end = prompt_end, .tools = *schemas, .id_seed = 7};
}

inline Answer ParsePieces(std::string_view family, const ParserOptions& options,
                          const std::vector<std::string_view>& pieces) {
  const ParserFamily* found = FindParserFamily(family);
  EXPECT_NE(found, nullptr) << family;
  const std::unique_ptr<ChatParser> parser = found->make(options);
  Answer answer;
  for (const std::string_view piece : pieces) {
    AnswerDelta delta;
    parser->Push(piece, delta);
    if (IsValidUtf8(piece)) {
      EXPECT_TRUE(IsValidUtf8(delta.content) && IsValidUtf8(delta.reasoning)) << piece;
    }
    Add(delta, answer);
  }
  AnswerDelta last;
  parser->Finish(last);
  Add(last, answer);
  return answer;
}

inline Answer Parse(std::string_view family, std::string_view text,
                    const ParserOptions& options = Options()) {
  return ParsePieces(family, options, {text});
}

// Parses the text cut at every byte, at every pair of bytes if it is short, and into single bytes.
inline void ExpectSameHoweverCut(std::string_view family, std::string_view text,
                                 const ParserOptions& options = Options()) {
  const std::string whole = Parse(family, text, options).Show();
  const auto expect_same = [&](const std::vector<std::string_view>& pieces, size_t at) {
    ASSERT_EQ(ParsePieces(family, options, pieces).Show(), whole) << family << " at " << at << text;
  };
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    bytes.push_back(text.substr(i, 1));
    expect_same({text.substr(0, i), text.substr(i)}, i);
    for (size_t k = i + 1; text.size() < 160 && k < text.size(); ++k) {
      expect_same({text.substr(0, i), text.substr(i, k - i), text.substr(k)}, i);
    }
  }
  expect_same(bytes, 0);
}

}  // namespace nereid::tokenizer
