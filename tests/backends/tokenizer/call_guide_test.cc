// Forced tool calls: the guide of each family accepts the calls that the family writes, and every
// text that it accepts is parsed back into calls that are valid.
#include "backends/tokenizer/lib/chat/parsers/call_guide.h"

#include <nlohmann/json.hpp>
#include <random>

#include "backends/llm_core/grammar/guide.h"
#include "tests/backends/llm_core/grammar/small_vocabulary.h"
#include "tests/backends/tokenizer/answers.h"

namespace nereid::tokenizer {
namespace {

using Json = nlohmann::ordered_json;
using llm::grammar::BytesAnd;
using llm::grammar::Grammar;
using llm::grammar::MaskHas;
using llm::grammar::Matcher;

constexpr char kOffered[] = R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
    "properties": {"city": {"enum": ["Bern", "Z\u00fcrich \"x\" {"]}, "days": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["city"], "additionalProperties": false}}},
  {"type": "function", "function": {"name": "now"}}])";

// The texts of calls in a family's form: one call, two calls, and some that are none. The second
// of two is a call of now().
struct FamilyCase {
  const char* family;
  const char* chat_template;
  std::string one, two;
  std::vector<std::string> near_misses;
};

void PrintTo(const FamilyCase& each, std::ostream* out) {
  *out << each.family;
}

const std::string kBern = R"({"city": "Bern", "days": 3})";

std::string DeepSeek(const std::string& calls) {
  return "<｜tool▁calls▁begin｜>" + calls + "<｜tool▁calls▁end｜>";
}
std::string DeepSeekV3(const std::string& name, const std::string& arguments) {
  return "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + name + "\n```json\n" + arguments +
         "\n```<｜tool▁call▁end｜>";
}
std::string DeepSeekV31(const std::string& name, const std::string& arguments) {
  return "<｜tool▁call▁begin｜>" + name + "<｜tool▁sep｜>" + arguments + "<｜tool▁call▁end｜>";
}

std::string JsonCall(const std::string& arguments) {
  return R"({"name": "get_weather", "arguments": )" + arguments + "}";
}
const std::string kNowCall = R"({"name": "now", "arguments": {}})";

const FamilyCase kCases[] = {
    {"hermes",
     "",
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " + kBern + "}\n</tool_call>",
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " + kBern +
         "}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
     {"<tool_call>\n{\"name\": \"get\", \"arguments\": {}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n"}},
    {"llama",
     "",
     R"({"name": "get_weather", "parameters": )" + kBern + "}",
     "",
     {R"({"name": "now", "parameters": {}}; {"name": "now", "parameters": {}})",
      R"({"name": "now", "arguments": {}})"}},
    {"mistral",
     "[TOOL_CALLS]",
     R"([TOOL_CALLS] [{"name": "get_weather", "arguments": )" + kBern + "}]",
     R"([TOOL_CALLS] [{"name": "get_weather", "arguments": )" + kBern +
         R"(}, {"name": "now", "arguments": {}}])",
     {R"([TOOL_CALLS] [])", R"([TOOL_CALLS] [{"name": "now", "arguments": {}})"}},
    {"mistral",
     "[TOOL_CALLS] [ARGS]",
     "[TOOL_CALLS]get_weather[ARGS]" + kBern,
     "[TOOL_CALLS]get_weather[ARGS]" + kBern + "[TOOL_CALLS]now[ARGS]{}",
     {"[TOOL_CALLS]get_weather[ARGS]{\"days\": 3}", "[TOOL_CALLS]now{}"}},
    {"deepseek_v3",
     "",
     DeepSeek(DeepSeekV3("get_weather", kBern)),
     DeepSeek(DeepSeekV3("get_weather", kBern) + "\n" + DeepSeekV3("now", "{}")),
     {DeepSeek(""), DeepSeek(DeepSeekV3("now", "[]"))}},
    {"deepseek_v31",
     "",
     DeepSeek(DeepSeekV31("get_weather", kBern)),
     DeepSeek(DeepSeekV31("get_weather", kBern) + DeepSeekV31("now", "{}")),
     {DeepSeek(""), DeepSeek(DeepSeekV31("later", "{}"))}},
    {"granite",
     "",
     "<|tool_call|>[" + JsonCall(kBern) + "]",
     "<|tool_call|>[" + JsonCall(kBern) + ", " + kNowCall + "]",
     {"<|tool_call|>" + kNowCall, "<|tool_call|>[]"}},
    {"granite",
     "<tool_call>",
     "<tool_call>\n" + JsonCall(kBern) + "\n</tool_call>",
     "<tool_call>\n" + JsonCall(kBern) + "\n</tool_call>\n<tool_call>\n" + kNowCall +
         "\n</tool_call>",
     {"<tool_call>" + kNowCall + "</tool_call>"}},
    {"granite",
     "<function_call>",
     "<function_call> " + JsonCall(kBern),
     "<function_call> " + JsonCall(kBern) + " <function_call> " + kNowCall,
     {"<function_call> " + kNowCall + kNowCall}},
    {"phi",
     "<|/tool_call|>",
     "<|tool_call|>[" + JsonCall(kBern) + "]<|/tool_call|>",
     "<|tool_call|>[" + JsonCall(kBern) + ", " + kNowCall + "]<|/tool_call|>",
     {"functools[" + kNowCall + "]"}},
    {"phi",
     "<|/tool|>",
     "functools[" + JsonCall(kBern) + "]",
     "functools[" + JsonCall(kBern) + ", " + kNowCall + "]",
     {"functools[]"}},
    {"nemotron",
     "",
     "<TOOLCALL>[" + JsonCall(kBern) + "]</TOOLCALL>",
     "<TOOLCALL>[" + JsonCall(kBern) + ", " + kNowCall + "]</TOOLCALL>",
     {"<TOOLCALL>[]</TOOLCALL>"}},
    {"minimax_m1",
     "",
     "<tool_calls>\n" + JsonCall(kBern) + "\n</tool_calls>",
     "<tool_calls>\n" + JsonCall(kBern) + "\n" + kNowCall + "\n</tool_calls>",
     {"<tool_calls>\n</tool_calls>"}},
    {"kimi",
     "",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
     "<|tool_call_argument_begin|>" +
         kBern + "<|tool_call_end|><|tool_calls_section_end|>",
     "",
     {"<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|>"}},
    {"gemma",
     "",
     R"({"name": "get_weather", "parameters": )" + kBern + "}",
     "",
     {R"([{"name": "now", "parameters": {}}])"}},
};

Result<std::string> Guide(const std::string& family, const std::string& choice,
                          const CallGuideOptions& options, const char* tools = kOffered) {
  NEREID_ASSIGN_OR_RETURN(const ToolChoice parsed, ParseToolChoice(choice));
  return ForcedCallsGuide(*FindParserFamily(family), Json::parse(tools), parsed, options);
}

std::shared_ptr<const Grammar> Compiled(const Result<std::string>& guide) {
  EXPECT_TRUE(guide.ok()) << guide.status().message();
  auto compiled = llm::grammar::CompileGuide({llm::grammar::GuideType::kStructuralTag, *guide},
                                             BytesAnd({"{\"", "<tool"}));
  EXPECT_TRUE(compiled.ok()) << compiled.status().message();
  return *compiled;
}

constexpr char kNow[] = R"({"type": "function", "function": {"name": "now"}})";

class CallGuideTest : public ::testing::TestWithParam<FamilyCase> {};

TEST_P(CallGuideTest, AcceptsTheCallsOfTheFamilyAndNoNearMiss) {
  const FamilyCase& each = GetParam();
  const auto required =
      Compiled(Guide(each.family, "required", {.chat_template = each.chat_template}));
  EXPECT_TRUE(Accepts(required, each.one));
  if (!each.two.empty()) {
    EXPECT_TRUE(Accepts(required, each.two));
  }
  for (const std::string& text : each.near_misses) EXPECT_FALSE(Accepts(required, text)) << text;
  EXPECT_FALSE(Accepts(required, ""));
  EXPECT_FALSE(Accepts(required, "Sure! " + each.one));

  const auto single = Compiled(
      Guide(each.family, "required", {.chat_template = each.chat_template, .has_one_call = true}));
  EXPECT_TRUE(Accepts(single, each.one));
  if (!each.two.empty()) {
    EXPECT_FALSE(Accepts(single, each.two));
  }
  const auto named = Compiled(Guide(each.family, kNow, {.chat_template = each.chat_template}));
  EXPECT_FALSE(Accepts(named, each.one));
}

// Walks through the grammar at random until the text may end, and ends it there.
std::string RandomText(const std::shared_ptr<const Grammar>& grammar, std::mt19937& random) {
  Matcher matcher(grammar);
  std::vector<uint32_t> mask(grammar->vocabulary().num_mask_words());
  const int32_t end = grammar->vocabulary().end_ids()[0];
  std::string text;
  while (text.size() < 4000) {
    matcher.ComputeMask(mask);
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < end; ++token) {
      if (MaskHas(mask, token)) allowed.push_back(token);
    }
    if (matcher.CanEnd() && (allowed.empty() || random() % 2 == 0)) return text;
    if (allowed.empty()) break;
    const int32_t token = allowed[random() % allowed.size()];
    EXPECT_TRUE(matcher.AcceptToken(token));
    text += grammar->vocabulary().token(token);
  }
  ADD_FAILURE() << "no end: " << text;
  return text;
}

TEST_P(CallGuideTest, EveryTextThatItAcceptsIsParsedIntoValidCalls) {
  const FamilyCase& each = GetParam();
  std::mt19937 random(7);
  for (const char* const prompt_end : {"assistant\n", "assistant\n<think>\n"}) {
    for (const std::string choice : {"required", kNow}) {
      const auto guide = Guide(each.family, choice,
                               {.chat_template = each.chat_template, .prompt_end = prompt_end});
      const auto grammar = Compiled(guide);
      for (int i = 0; i < 20; ++i) {
        const std::string text = RandomText(grammar, random);
        const Answer answer = Parse(each.family, text, Options(prompt_end, kOffered));
        EXPECT_EQ(answer.content + answer.reasoning, "") << text;
        ASSERT_FALSE(answer.calls.empty()) << text;
        if (choice != "required") {
          EXPECT_EQ(answer.calls.size(), 1u) << text;
        }
        for (const Call& call : answer.calls) {
          const Json arguments = Json::parse(call.arguments, nullptr, false);
          ASSERT_TRUE(arguments.is_object()) << text;
          if (call.name == "now") {
            EXPECT_TRUE(arguments.empty()) << text;
            continue;
          }
          EXPECT_TRUE(call.name == "get_weather" && choice == "required") << text;
          EXPECT_TRUE(arguments.contains("city") && arguments.size() <= 2) << text;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CallGuideTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) {
                           return StrCat(info.param.family, "_", info.index);
                         });

TEST(CallGuideErrorsTest, WhatCannotBeForcedIsRefusedByName) {
  const auto error = [](const std::string& family, const std::string& choice, const char* tools) {
    const auto guide = Guide(family, choice, {}, tools);
    EXPECT_EQ(guide.status().code(), StatusCode::kInvalidArg);
    return std::string(guide.status().message());
  };
  EXPECT_EQ(error("glm", "required", kOffered), "the calls of the family 'glm' cannot be forced");
  EXPECT_EQ(error("hermes", "required", "[]"), "there are no tools that could be called");
  EXPECT_EQ(error("hermes", R"({"function": {"name": "g"}})", kOffered),
            "'g' is not among the tools");
  EXPECT_EQ(error("hermes", "required", R"([{"function": {"name": "a b"}}])"),
            "tools[0].function.name: 'a b' cannot be the name of a function in a call");
  EXPECT_EQ(error("hermes", "required",
                  R"([{"function": {"name": "f", "parameters": {"type": ["string", "null"]}}}])"),
            "tools[0].function.parameters.type: expected 'object', the arguments of a call");
  EXPECT_EQ(error("hermes", "required", R"([{"function": {"name": "f", "parameters": 3}}])"),
            "tools[0].function.parameters: expected a schema of objects");
  EXPECT_EQ(error("hermes", "required", "{}"), "tools: expected a list, got object");
  EXPECT_EQ(error("hermes", "required", "null"), "there are no tools that could be called");
  for (const char* const choice : {"any", "{", R"({"type": "function"})", R"("required")"}) {
    EXPECT_EQ(ParseToolChoice(choice).status().code(), StatusCode::kInvalidArg) << choice;
  }
  EXPECT_FALSE(ParseToolChoice("auto")->is_forced || ParseToolChoice("")->is_forced);
}

TEST(CallGuideErrorsTest, ASchemaThatTheGrammarRefusesNamesTheFunction) {
  const auto guide = Guide("hermes", "required", {}, R"([{"function": {"name": "f", "parameters":
      {"properties": {"a": {"type": "array", "uniqueItems": true}}}}}])");
  ASSERT_TRUE(guide.ok());
  const auto compiled =
      llm::grammar::CompileGuide({llm::grammar::GuideType::kStructuralTag, *guide}, BytesAnd({}));
  EXPECT_NE(compiled.status().message().find("{\"name\": \"f\""), std::string::npos);
  EXPECT_NE(compiled.status().message().find("#/properties/a: uniqueItems: "), std::string::npos);
}

}  // namespace
}  // namespace nereid::tokenizer
