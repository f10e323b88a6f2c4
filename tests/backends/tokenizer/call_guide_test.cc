// Forced tool calls: the guide of each family accepts the calls that the family writes, and every
// text that it accepts is parsed back into calls that are valid.
#include "backends/tokenizer/lib/chat/parsers/call_guide.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "backends/llm_core/grammar/guide.h"
#include "backends/llm_core/grammar/schema_shape.h"
#include "tests/backends/llm_core/grammar/small_vocabulary.h"
#include "tests/backends/tokenizer/answers.h"
#include "tests/support/sanitizer.h"

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

// A call with a tag for each argument: of get_weather(city="Bern", days=3), and of now().
std::string Tagged(const std::string& name_end, const std::string& city_begin,
                   const std::string& days_begin, const std::string& end,
                   const std::string& call_end) {
  return "get_weather" + name_end + city_begin + "Bern" + end + days_begin + "3" + end + call_end;
}
std::string Dsml(const std::string& calls, const std::string& section) {
  return "\n\n<｜DSML｜" + section + ">\n" + calls + "</｜DSML｜" + section + ">";
}
const std::string kDsmlCall =
    "<｜DSML｜invoke name=\"" + Tagged("\">\n", "<｜DSML｜parameter name=\"city\" string=\"true\">",
                                       "<｜DSML｜parameter name=\"days\" string=\"false\">",
                                       "</｜DSML｜parameter>\n", "</｜DSML｜invoke>\n");
const std::string kDsmlNow = "<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n";
const std::string kQwenCall =
    "<tool_call>\n<function=" + Tagged(">\n", "<parameter=city>\n", "<parameter=days>\n",
                                       "\n</parameter>\n", "</function>\n</tool_call>");
const std::string kSeedCall =
    "<seed:tool_call>\n<function=" + Tagged(">\n", "<parameter=city>", "<parameter=days>",
                                            "</parameter>\n", "</function>\n</seed:tool_call>");
const std::string kGlmCall = "<tool_call>" + Tagged("\n", "<arg_key>city</arg_key>\n<arg_value>",
                                                    "<arg_key>days</arg_key>\n<arg_value>",
                                                    "</arg_value>\n", "</tool_call>");
const std::string kGlm47Call =
    "<tool_call>" + Tagged("", "<arg_key>city</arg_key><arg_value>",
                           "<arg_key>days</arg_key><arg_value>", "</arg_value>", "</tool_call>");
const std::string kHunyuanCall =
    "<tool_call:opensource>" +
    Tagged("<tool_sep:opensource>\n",
           "<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>",
           "<arg_key:opensource>days</arg_key:opensource>\n<arg_value:opensource>",
           "</arg_value:opensource>\n", "</tool_call:opensource>\n");
const std::string kMiniMaxCall =
    "<invoke name=\"" + Tagged("\">\n", "<parameter name=\"city\">", "<parameter name=\"days\">",
                               "</parameter>\n", "</invoke>\n");
const std::string kKimiK3Section =
    "<|open|>response<|sep|><|close|>response<|sep|><|open|>tools<|sep|>";
const std::string kHarmony = "<|channel|>commentary to=functions.";

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
    {"qwen3_coder",
     "",
     kQwenCall,
     kQwenCall + "\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
     {"<tool_call>\n<function=get_weather>\n</function>\n</tool_call>",
      "<tool_call>\n<function=get_weather>\n<parameter=city>\nRom\n</parameter>\n</function>\n"
      "</tool_call>",
      "<tool_call>\n<function=now>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"}},
    {"seed_oss",
     "",
     kSeedCall,
     kSeedCall + "\n<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>",
     {"<seed:tool_call>\n<function=now>\n</function>"}},
    {"glm",
     "",
     kGlmCall,
     kGlmCall + "\n<tool_call>now\n</tool_call>",
     {"<tool_call>now</tool_call>"}},
    {"glm",
     "</arg_key><arg_value>",
     kGlm47Call,
     kGlm47Call + "<tool_call>now</tool_call>",
     {"<tool_call>now</tool_call><arg_key>", "<tool_call>get_weather</tool_call>"}},
    {"hunyuan",
     "",
     "<tool_calls:opensource>\n" + kHunyuanCall + "</tool_calls:opensource>",
     "<tool_calls:opensource>\n" + kHunyuanCall +
         "<tool_call:opensource>now<tool_sep:opensource>\n</tool_call:opensource>\n"
         "</tool_calls:opensource>",
     {"<tool_calls:opensource>\n</tool_calls:opensource>"}},
    {"minimax",
     "",
     "<minimax:tool_call>\n" + kMiniMaxCall + "</minimax:tool_call>",
     "<minimax:tool_call>\n" + kMiniMaxCall +
         "<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
     {"<minimax:tool_call>\n</minimax:tool_call>"}},
    {"deepseek_v32",
     "",
     Dsml(kDsmlCall, "function_calls"),
     Dsml(kDsmlCall + kDsmlNow, "function_calls"),
     {Dsml("", "function_calls"), Dsml(kDsmlNow, "tool_calls")}},
    {"deepseek_v4",
     "",
     Dsml(kDsmlCall, "tool_calls"),
     Dsml(kDsmlCall + kDsmlNow, "tool_calls"),
     {Dsml("", "tool_calls"), Dsml(kDsmlNow, "function_calls")}},
    {"kimi_k3",
     "",
     kKimiK3Section + "<|open|>call tool=\"" +
         Tagged("\" index=\"1\"<|sep|>", "<|open|>argument key=\"city\" type=\"string\"<|sep|>",
                "<|open|>argument key=\"days\" type=\"number\"<|sep|>", "<|close|>argument<|sep|>",
                "<|close|>call<|sep|><|close|>tools<|sep|>"),
     "",
     {kKimiK3Section + "<|close|>tools<|sep|>"}},
    {"harmony",
     "",
     kHarmony + "get_weather <|constrain|>json<|message|>" + kBern,
     "",
     {kHarmony + "now <|constrain|>json<|message|>[]", kHarmony + "now<|message|>{}"}},
    {"gemma4",
     "",
     "<|tool_call>call:get_weather{city:<|\"|>Bern<|\"|>,days:3}<tool_call|>",
     "<|tool_call>call:get_weather{city:<|\"|>Zürich \"x\" "
     "{<|\"|>}<tool_call|><|tool_call>call:now{}"
     "<tool_call|>",
     {"<|tool_call>call:get_weather{city:\"Bern\"}<tool_call|>",
      "<|tool_call>call:get_weather{\"city\":<|\"|>Bern<|\"|>}<tool_call|>"}},
    {"lfm2",
     "",
     "<|tool_call_start|>[get_weather(city=\"Bern\", days=3)]<|tool_call_end|>",
     "<|tool_call_start|>[get_weather(city=\"Z\\u00fcrich \\\"x\\\" {\"), now()]<|tool_call_end|>",
     {"<|tool_call_start|>[get_weather()]<|tool_call_end|>", "[now()]"}},
    {"pythonic", "", "[get_weather(city=\"Bern\")]", "[get_weather(city=\"Bern\"), now()]", {"[]"}},
    {"llama",
     "[func_name1(params_name1=params_value1)]",
     "[get_weather(city=\"Bern\", days=3)]",
     "[get_weather(city=\"Bern\"), now()]",
     {R"({"name": "now", "parameters": {}})"}},
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

// Walks through the grammar at random until the text may end, and ends it there. Of the tokens of
// several bytes that are allowed, half of the steps take one.
std::string RandomText(const std::shared_ptr<const Grammar>& grammar, std::mt19937& random) {
  Matcher matcher(grammar);
  std::vector<uint32_t> mask(grammar->vocabulary().num_mask_words());
  const int32_t end = grammar->vocabulary().end_ids()[0];
  std::string text;
  while (text.size() < 40000) {
    matcher.ComputeMask(mask);
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < end; ++token) {
      if (MaskHas(mask, token)) allowed.push_back(token);
    }
    if (matcher.CanEnd() && (allowed.empty() || random() % 2 == 0)) return text;
    if (allowed.empty()) break;
    const auto longer =
        std::partition(allowed.begin(), allowed.end(), [](int32_t token) { return token < 256; });
    const bool takes_longer = longer != allowed.end() && random() % 2 == 0;
    const auto first = takes_longer ? longer : allowed.begin();
    const int32_t token = first[static_cast<int64_t>(random() % (allowed.end() - first))];
    EXPECT_TRUE(matcher.AcceptToken(token));
    text += grammar->vocabulary().token(token);
  }
  ADD_FAILURE() << "no end: " << text;
  return text;
}

TEST_P(CallGuideTest, EveryTextThatItAcceptsIsParsedIntoValidCalls) {
  const FamilyCase& each = GetParam();
  std::mt19937 random(7);
  const std::string reasoning(FindParserFamily(each.family)->reasoning.begin);
  for (const std::string& prompt_end : {std::string("assistant\n"), reasoning + "\n"}) {
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

// A schema with each kind of value that a reader of plain text may mistake for another.
constexpr char kRich[] = R"([{"type": "function", "function": {"name": "f", "parameters": {
  "type": "object", "$defs": {"text": {"type": "string", "maxLength": 12}}, "properties": {
    "city": {"type": "string", "maxLength": 40}, "code": {"type": "string", "pattern": "^[0-9a-z\\s]{1,6}$"},
    "choice": {"enum": ["3", "null", " x\n", "</parameter", "it's", 7, true, null]},
    "size": {"enum": ["3", "null", "a/b"]}, "maybe": {"type": ["string", "null"], "maxLength": 12},
    "ref": {"$ref": "#/$defs/text"}, "number": {"type": "number"}, "ok": {"type": "boolean"},
    "list": {"type": "array", "maxItems": 3, "items": {"type": ["string", "boolean"], "maxLength": 20}},
    "place": {"type": "object", "properties": {"x": {"type": "integer"}, "s": {"$ref": "#/$defs/text"}},
              "maxProperties": 3, "additionalProperties": {"type": "string", "maxLength": 9}}},
  "required": ["city"], "additionalProperties": {"type": ["string", "integer"], "maxLength": 8}}}}])";

// What ends a value in some family, or makes text look like another value.
const std::vector<std::string> kTelling = {"</parameter>",
                                           "\n</parameter>\n",
                                           "</arg_value>",
                                           "</arg_value:opensource>",
                                           "<|\"|>",
                                           "<tool_call|>",
                                           "<|close|>argument<|sep|>",
                                           "<|close|>response<|sep|>",
                                           "<|close|>message<|sep|>",
                                           "<|call|>",
                                           "<|end|>",
                                           "</｜DSML｜parameter>",
                                           "<｜tool▁call▁end｜>",
                                           "<|tool_call_end|>",
                                           "<response>",
                                           "</response>",
                                           "\\/",
                                           "\\\\",
                                           "\\\"",
                                           "\"",
                                           "'",
                                           "null",
                                           "None",
                                           "true",
                                           "False",
                                           "12",
                                           "1e99",
                                           "-0",
                                           "[1]",
                                           "{}",
                                           "}",
                                           "]",
                                           ")",
                                           "\", ",
                                           "\n",
                                           " ",
                                           "/",
                                           "\\u0041",
                                           "\\ud83d\\ude00",
                                           "<think>",
                                           "</think>",
                                           ",",
                                           "\"}",
                                           "))"};

TEST_P(CallGuideTest, WhateverTheTextsContainCallsFitTheirSchema) {
  const FamilyCase& each = GetParam();
  const auto guide = Guide(each.family, "required",
                           {.chat_template = each.chat_template, .has_one_call = true}, kRich);
  ASSERT_TRUE(guide.ok()) << guide.status().message();
  const auto grammar = llm::grammar::CompileGuide({llm::grammar::GuideType::kStructuralTag, *guide},
                                                  BytesAnd(kTelling), {.max_json_whitespace = 1});
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  const auto schema =
      llm::grammar::SchemaDocument::Parse(Json::parse(kRich)[0]["function"]["parameters"].dump());
  ASSERT_TRUE(schema.ok());
  std::mt19937 random(11);
  for (int i = 0; i < (kHasSanitizer ? 20 : 60); ++i) {
    const std::string text = RandomText(*grammar, random);
    const Answer answer = Parse(each.family, text, Options("assistant\n", kRich));
    ASSERT_EQ(answer.calls.size(), 1u) << text << "\n" << answer.Show();
    EXPECT_EQ(answer.content + answer.reasoning, "") << text;
    const Json arguments = Json::parse(answer.calls[0].arguments, nullptr, false);
    ASSERT_TRUE(arguments.is_object()) << text << "\n" << answer.calls[0].arguments;
    const auto fits = (*schema)->IsValid(arguments, {&(*schema)->root()});
    ASSERT_TRUE(fits.ok()) << fits.status().message();
    EXPECT_TRUE(*fits) << text << "\n" << answer.calls[0].arguments;
  }
}

// A vocabulary in which these are special tokens behind the bytes.
std::shared_ptr<const llm::grammar::Vocabulary> BytesAndSpecial(
    const std::vector<std::string>& markers) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  std::vector<llm::grammar::Vocabulary::SpecialToken> special;
  for (const std::string& marker : markers) {
    special.push_back({static_cast<int32_t>(tokens.size()), marker});
    tokens.emplace_back();
  }
  tokens.emplace_back();
  const auto end = static_cast<int32_t>(tokens.size() - 1);
  return llm::grammar::Vocabulary::Make(std::move(tokens), {end}, std::move(special)).value();
}

TEST(CallGuideMarkersTest, MarkersAreSpecialTokensWhereTheVocabularyHasThem) {
  const std::map<std::string, std::vector<std::string>> kMarkers = {
      {"gemma4", {"<|tool_call>", "<tool_call|>", "<|\"|>"}},
      {"glm",
       {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}},
      {"kimi_k3", {"<|open|>", "<|close|>", "<|sep|>"}}};
  for (const auto& [family, markers] : kMarkers) {
    const auto guide = Guide(family, "required", {.has_one_call = true}, kRich);
    const auto grammar = llm::grammar::CompileGuide(
        {llm::grammar::GuideType::kStructuralTag, *guide}, BytesAndSpecial(markers));
    ASSERT_TRUE(grammar.ok()) << grammar.status().message();
    std::mt19937 random(3);
    for (int i = 0; i < 20; ++i) {
      std::string text = RandomText(*grammar, random);
      for (size_t id = 0; id < markers.size(); ++id) {
        const std::string bytes((*grammar)->vocabulary().token(static_cast<int32_t>(256 + id)));
        size_t num = 0;
        for (size_t at = 0; (at = text.find(bytes, at)) != std::string::npos; ++num) {
          text.replace(at, bytes.size(), markers[id]);
        }
        EXPECT_GT(num, 0u) << markers[id] << text;
      }
      EXPECT_EQ(Parse(family, text, Options("", kRich)).calls.size(), 1u) << text;
    }
  }
}

TEST(CallGuideMarkersTest, StringsDoNotContainTheMarkersThatEndTheirCall) {
  constexpr char kText[] = R"([{"function": {"name": "f", "parameters": {"properties": {"x":
      {"type": "string"}}}}}])";
  const auto expect_without = [&](const char* family, const char* begin, const char* marker,
                                  const char* end) {
    const auto grammar = Compiled(Guide(family, "required", {}, kText));
    EXPECT_TRUE(Accepts(grammar, StrCat(begin, R"({"x": "<|a|>"})", end))) << family;
    EXPECT_FALSE(Accepts(grammar, StrCat(begin, R"({"x": ")", marker, "\"}", end))) << family;
  };
  expect_without("kimi",
                 "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
                 "<|tool_call_argument_begin|>",
                 "<|tool_call_end|>", "<|tool_call_end|><|tool_calls_section_end|>");
  expect_without("deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>",
                 "<｜tool▁call▁end｜>", "<｜tool▁call▁end｜><｜tool▁calls▁end｜>");
  expect_without("harmony", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
                 "<|start|>", "");
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
  EXPECT_EQ(error("think", "required", kOffered),
            "the calls of the family 'think' cannot be forced");
  EXPECT_EQ(error("lfm2", "required", R"([{"function": {"name": "f:g"}}])"),
            "tools[0].function.name: 'f:g' cannot be the name of a function in a call");
  EXPECT_EQ(
      error("glm", "required", R"([{"function": {"name": "f"}}, {"function": {"name": "f"}}])"),
      "tools[1].function.name: 'f' is the name of two tools");
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
