// Parsers of answers: what each family's text becomes, and that it does not depend on how the text
// is cut.
#include "backends/tokenizer/lib/chat/parsers/chat_parser.h"

#include <map>
#include <nlohmann/json.hpp>

#include "tests/backends/tokenizer/answers.h"

namespace nereid::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

struct Case {
  const char* family;
  const char* text;
  const char* reasoning;
  const char* content;
  std::vector<std::pair<const char*, const char*>> calls;
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> kCases = {
      {"hermes",
       "<think>\nHm.\n\n</think>\n\nLet me look.\n<tool_call>\n{\"name\": \"get_weather\", "
       "\"arguments\": {\"city\": \"Zürich </tool_call>\", \"days\": "
       "3}}\n</tool_call>\n<tool_call>\n"
       "{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
       "Hm.",
       "Let me look.",
       {{"get_weather", "{\"city\": \"Zürich </tool_call>\", \"days\": 3}"}, {"now", "{}"}}},
      {"hermes",
       "<tool_call>{\"arguments\": {\"city\": \"a\\\"}\"}, \"name\": \"get_weather\"}</tool_call> "
       "done\n",
       "",
       "done",
       {{"get_weather", "{\"city\": \"a\\\"}\"}"}}},
      {"hermes",
       "<tool_call>{\"name\": \"now\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
       "",
       "",
       {{"now", "{\"a\": 1}"}}},
      {"qwen3_coder",
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</"
       "parameter>\n<parameter=days>\n"
       "2\n</parameter>\n<parameter=zip>\n0123\n</parameter>\n<parameter=tags>\n[\"a\", "
       "1]\n</parameter>\n"
       "<parameter=exact>\nTrue\n</parameter>\n</function>\n</tool_call>",
       "",
       "",
       {{"get_weather",
         "{\"city\": \"Paris\", \"days\": 2, \"zip\": \"0123\", \"tags\": [\"a\", 1], \"exact\": "
         "true}"}}},
      {"qwen3_coder",
       "<tool_call>\n<function=get_weather>\n<parameter=code>\n\nif a < b:\n  "
       "\"x\"\n\n</parameter>\n"
       "</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
       "",
       "",
       {{"get_weather", "{\"code\": \"\\nif a < b:\\n  \\\"x\\\"\\n\"}"}, {"now", "{}"}}},
      {"llama",
       "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}",
       "",
       "",
       {{"get_weather", "{\"city\": \"Oslo\"}"}}},
      {"llama",
       "<|python_tag|>{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}; "
       "{\"name\": \"now\", \"parameters\": {\"a\": null}}",
       "",
       "",
       {{"now", "{}"}, {"now", "{\"a\": null}"}}},
      {"llama",
       "<|python_tag|>brave_search.call(query=\"a b\")",
       "",
       "",
       {{"brave_search", "{\"query\": \"a b\"}"}}},
      {"llama",
       "[get_weather(city='It\\'s', days=-2, tags=[1, None], place={'a': True}), now()]",
       "",
       "",
       {{"get_weather",
         "{\"city\": \"It's\", \"days\": -2, \"tags\": [1, null], \"place\": {\"a\": true}}"},
        {"now", "{}"}}},
      {"llama", "<|python_start|>[now()]<|python_end|>", "", "", {{"now", "{}"}}},
      {"pythonic",
       "[now(), get_weather(city=\"]\")]",
       "",
       "",
       {{"now", "{}"}, {"get_weather", "{\"city\": \"]\"}"}}},
      {"mistral",
       "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a\"}}, "
       "{\"name\": \"now\", \"arguments\": {}, \"id\": \"abcdef123\"}]",
       "",
       "",
       {{"get_weather", "{\"city\": \"a\"}"}, {"now", "{}"}}},
      {"mistral",
       "[THINK]so[/THINK]ok[TOOL_CALLS]get_weather[ARGS]{\"city\": \"[\"}[TOOL_CALLS]now[CALL_ID]"
       "abcdef123[ARGS]{}",
       "so",
       "ok",
       {{"get_weather", "{\"city\": \"[\"}"}, {"now", "{}"}}},
      {"mistral", "[TOOL_CALLS]now{\"a\": {}}", "", "", {{"now", "{\"a\": {}}"}}},
      {"deepseek_v3",
       "<think>a</"
       "think>b<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```"
       "json\n"
       "{\"city\": "
       "\"é\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}"
       "\n```"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "a",
       "b",
       {{"get_weather", "{\"city\": \"é\"}"}, {"now", "{}"}}},
      {"deepseek_v31",
       "b<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": "
       "\"é\"}<｜tool▁call▁end｜>"
       "<｜tool▁call▁begin｜>now<｜tool▁sep｜><｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "",
       "b",
       {{"get_weather", "{\"city\": \"é\"}"}, {"now", "{}"}}},
      {"harmony",
       "<|channel|>analysis<|message|>think "
       "<|end|><|start|>assistant<|channel|>commentary<|message|>I look."
       "<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
       "<|constrain|>json<|message|>"
       "{\"city\": \"a\"}<|call|>",
       "think",
       "I look.",
       {{"get_weather", "{\"city\": \"a\"}"}}},
      {"harmony",
       " to=functions.now<|channel|>commentary json<|message|>{}<|call|>",
       "",
       "",
       {{"now", "{}"}}},
      {"harmony",
       "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>Hi < "
       "there.",
       "a",
       "Hi < there.",
       {}},
      {"glm",
       "\n<think>r</think>\nok\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</"
       "arg_value>\n"
       "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n"
       "</tool_call>\n<tool_call>now</tool_call>",
       "r",
       "ok",
       {{"get_weather", "{\"city\": \"Oslo\", \"days\": 3}"}, {"now", "{}"}}},
      {"kimi",
       "x<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_"
       "argument_begin|>"
       "{\"city\": "
       "\"a\"}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}"
       "<|tool_call_end|><|tool_calls_section_end|>",
       "",
       "x",
       {{"get_weather", "{\"city\": \"a\"}"}, {"now", "{}"}}},
      {"gemma",
       "Sure:\n```tool_code\nget_weather(city=\"a\", days=1)\nnow()\n```\n",
       "",
       "Sure:",
       {{"get_weather", "{\"city\": \"a\", \"days\": 1}"}, {"now", "{}"}}},
      {"gemma",
       "```tool_code\n{\"name\": \"now\", \"parameters\": {}}\n```",
       "",
       "",
       {{"now", "{}"}}},
      {"phi",
       "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\", \"arguments\": "
       "{}}]<|/tool_call|>",
       "",
       "",
       {{"now", "{}"}, {"now", "{}"}}},
      {"phi",
       "functools[{\"name\": \"now\", \"arguments\": {\"a\": [1]}}]",
       "",
       "",
       {{"now", "{\"a\": [1]}"}}},
      {"granite",
       "Here is my thought process: t\nHere is my response: r<|tool_call|>[{\"name\": \"now\", "
       "\"arguments\": {}}]",
       "t",
       "r",
       {{"now", "{}"}}},
      {"granite",
       "<think>t</think><response>r</response><tool_call>\n{\"name\": \"now\", \"arguments\": "
       "{}}\n</tool_call>",
       "t",
       "r",
       {{"now", "{}"}}},
      {"minimax",
       "\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter "
       "name=\"city\">a\nb</parameter>\n"
       "<parameter name=\"tags\">[1, 2]</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n"
       "</minimax:tool_call>",
       "",
       "",
       {{"get_weather", "{\"city\": \"a\\nb\", \"tags\": [1, 2]}"}, {"now", "{}"}}},
      {"minimax_m1",
       "<tool_calls>\n{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"now\", \"arguments\": "
       "{}}\n</tool_calls>",
       "",
       "",
       {{"now", "{}"}, {"now", "{}"}}},
      {"deepseek_v32",
       "t</think>c\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n"
       "<｜DSML｜parameter name=\"city\" string=\"true\">5</｜DSML｜parameter>\n"
       "<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n"
       "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n"
       "</｜DSML｜function_calls>",
       "",
       "t</think>c",
       {{"get_weather", "{\"city\": \"5\", \"days\": 3}"}, {"now", "{}"}}},
      {"deepseek_v4",
       "<think>t</think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"now\">\n"
       "<｜DSML｜parameter name=\"zone\" string=\"false\">[\"a\", null]</｜DSML｜parameter>\n"
       "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
       "t",
       "",
       {{"now", "{\"zone\": [\"a\", null]}"}}},
      {"kimi_k3",
       "<|open|>think<|sep|>t<|close|>think<|sep|><|open|>response<|sep|>r<|close|>response<|sep|>"
       "<|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|>"
       "<|open|>argument key=\"city\" type=\"string\"<|sep|>5<|close|>argument<|sep|>"
       "<|open|>argument key=\"days\" type=\"number\"<|sep|>3<|close|>argument<|sep|>"
       "<|close|>call<|sep|><|open|>call tool=\"now\" index=\"2\"<|sep|><|close|>call<|sep|>"
       "<|close|>tools<|sep|><|close|>message<|sep|>",
       "t",
       "r",
       {{"get_weather", "{\"city\": \"5\", \"days\": 3}"}, {"now", "{}"}}},
      {"hunyuan",
       "<think:opensource>t</think:opensource>c<tool_calls:opensource>\n"
       "<tool_call:opensource>get_weather<tool_sep:opensource>\n"
       "<arg_key:opensource>city</arg_key:opensource>\n"
       "<arg_value:opensource>5</arg_value:opensource>\n</tool_call:opensource>\n"
       "<tool_call:opensource>now<tool_sep:opensource>\n</tool_call:opensource>\n"
       "</tool_calls:opensource>",
       "t",
       "c",
       {{"get_weather", "{\"city\": \"5\"}"}, {"now", "{}"}}},
      {"seed_oss",
       "<seed:think>t</seed:think>c\n<seed:tool_call>\n<function=get_weather>\n"
       "<parameter=city>5</parameter>\n<parameter=days>3</parameter>\n</function>\n"
       "</seed:tool_call>",
       "t",
       "c",
       {{"get_weather", "{\"city\": \"5\", \"days\": 3}"}}},
      {"lfm2",
       "a<|tool_call_start|>[get_weather(city='x', days=3), now()]<|tool_call_end|>b",
       "",
       "ab",
       {{"get_weather", "{\"city\": \"x\", \"days\": 3}"}, {"now", "{}"}}},
      {"nemotron",
       "<think>t</think><TOOLCALL>[{\"name\": \"now\", \"arguments\": {}}]</TOOLCALL>",
       "t",
       "",
       {{"now", "{}"}}},
      {"qwen3_coder",
       "<think>t\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
       "t",
       "",
       {{"now", "{}"}}},
      {"kimi",
       "<think>t<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
       "t",
       "",
       {{"now", "{}"}}},
      {"gemma4",
       "<|channel>thought\nt\n<channel|>c<|tool_call>call:get_weather{city:<|\"|>Z \"{:},<|\"|>,"
       "days:3,exact:true,tags:[<|\"|>a<|\"|>,None,1.5,{k:{}}]}<tool_call|><|tool_call>call:now{}"
       "<tool_call|>",
       "t",
       "c",
       {{"get_weather",
         "{\"city\": \"Z \\\"{:},\", \"days\": 3, \"exact\": true, \"tags\": [\"a\", null, 1.5, "
         "{\"k\": {}}]}"},
        {"now", "{}"}}},
      {"think", "<think>a</think>b<tool_call>", "a", "b<tool_call>", {}},
  };
  return kCases;
}

TEST(ChatParserTest, EachFamilyReadsItsOwnForm) {
  std::map<std::string_view, int> num_cases;
  for (const Case& each : Cases()) {
    SCOPED_TRACE(each.text);
    ++num_cases[each.family];
    const Answer answer = Parse(each.family, each.text);
    EXPECT_EQ(answer.reasoning, each.reasoning);
    EXPECT_EQ(answer.content, each.content);
    ASSERT_EQ(answer.calls.size(), each.calls.size()) << answer.Show();
    for (size_t i = 0; i < each.calls.size(); ++i) {
      EXPECT_EQ(answer.calls[i].name, each.calls[i].first);
      EXPECT_EQ(answer.calls[i].arguments, each.calls[i].second);
      EXPECT_TRUE(Json::accept(answer.calls[i].arguments));
    }
  }
  for (const ParserFamily* family : ParserFamilies())
    EXPECT_GT(num_cases[family->name], 0) << family->name;
}

TEST(ChatParserTest, TheResultDoesNotDependOnHowTheTextIsCut) {
  for (const Case& each : Cases()) ExpectSameHoweverCut(each.family, each.text);
}

TEST(ChatParserTest, EveryFamilyGivesTheSameForTextsOfOthersHoweverCut) {
  for (const ParserFamily* family : ParserFamilies()) {
    for (const Case& each : Cases()) {
      const std::string_view text = each.text;
      const std::string whole = Parse(family->name, text).Show();
      for (size_t step : {1, 2, 3, 7}) {
        std::vector<std::string_view> pieces;
        for (size_t i = 0; i < text.size(); i += step) pieces.push_back(text.substr(i, step));
        ASSERT_EQ(ParsePieces(family->name, Options(), pieces).Show(), whole)
            << family->name << text;
      }
    }
  }
}

TEST(ChatParserTest, TruncatedAnswersAreTheSameHoweverCutAndLoseNoCall) {
  for (const Case& each : Cases()) {
    const std::string_view text = each.text;
    for (size_t end = 0; end < text.size(); end += 3) {
      const std::string_view part = text.substr(0, end);
      std::vector<std::string_view> bytes;
      for (size_t i = 0; i < part.size(); ++i) bytes.push_back(part.substr(i, 1));
      const Answer whole = Parse(each.family, part);
      ASSERT_EQ(ParsePieces(each.family, Options(), bytes).Show(), whole.Show()) << part;
      ASSERT_LE(whole.calls.size(), each.calls.size());
      // A call that was begun is no content.
      if (!whole.calls.empty() &&
          whole.calls.back().arguments != each.calls[whole.calls.size() - 1].second) {
        EXPECT_EQ(whole.content, each.content) << part;
      }
    }
  }
}

TEST(ChatParserTest, BrokenCallsAreContent) {
  const std::vector<std::pair<const char*, const char*>> texts = {
      {"hermes", "a <tool_call>nothing</tool_call>"},
      {"hermes", "<tool_call>{\"nome\": 1}</tool_call>"},
      {"hermes", "<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>"},
      {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"},
      {"hermes", "<tool_call>{\"name\" \"f\"}"},
      {"hermes", "<tool_call>{\"name\": \"f"},
      {"qwen3_coder", "<tool_call>{}</tool_call>"},
      {"qwen3_coder", "<tool_call>\n<function=a b>\n</function>"},
      {"glm", "<tool_call>get weather\n</tool_call>"},
      {"glm", "<tool_call>now\n<arg_key>k</arg_key> <arg>"},
      {"llama", "{\"name\": \"Bob\", \"parameters\": {\"age\": 3}}"},
      {"llama", "[1, 2, 3] is a list"},
      {"llama", "[get_weather(5)]"},
      {"llama", "<|python_tag|>print(1 + 1)"},
      {"mistral", "[TOOL_CALLS] no call"},
      {"mistral", "[TOOL_CALLS]now[ARGS]none"},
      {"deepseek_v3", "<｜tool▁calls▁begin｜>nothing"},
      {"deepseek_v31", "<｜tool▁call▁begin｜>now<｜tool▁sep｜>none<｜tool▁call▁end｜>"},
      {"kimi", "<|tool_call_begin|>now<|tool_call_argument_begin|>{}<|tool_call_end|>"},
      {"phi", "functools are useful"},
      {"minimax", "<minimax:tool_call>f()</minimax:tool_call>"},
      {"deepseek_v32", "<｜DSML｜function_calls>now()</｜DSML｜function_calls>"},
      {"deepseek_v4", "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"a b\">\n</｜DSML｜invoke>"},
      {"kimi_k3", "<|open|>tools<|sep|>none<|close|>tools<|sep|>"},
      {"hunyuan", "<tool_calls:opensource>none</tool_calls:opensource>"},
      {"seed_oss", "<seed:tool_call>{}</seed:tool_call>"},
      {"lfm2", "<|tool_call_start|>[1, 2]<|tool_call_end|>"},
      {"nemotron", "<TOOLCALL>[1]</TOOLCALL>"},
      {"gemma4", "<|tool_call>call:now{a:}<tool_call|>"},
      {"gemma4", "<|tool_call>call:now{a:1,}<tool_call|>"},
      {"gemma4", "<|tool_call>call:now(1)<tool_call|>"},
      {"gemma4", "<|tool_call>call:now{a:<|\"|>x}<tool_call|>"},
      {"gemma4", "<|tool_call>call:now{a:1"},
  };
  for (const auto& [family, text] : texts) {
    const Answer answer = Parse(family, text);
    EXPECT_EQ(answer.content, text) << family;
    EXPECT_TRUE(answer.calls.empty()) << answer.Show();
    ExpectSameHoweverCut(family, text);
  }
}

TEST(ChatParserTest, ArgumentsOfACallThatWasBegunAreSentAsTheModelWroteThem) {
  const Answer answer =
      Parse("hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1,,");
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].arguments, "{\"a\": 1,,");
  EXPECT_EQ(answer.content, "");
}

TEST(ChatParserTest, MarkersAroundTheContentAreDroppedFromItAndKeptInArguments) {
  const std::vector<std::pair<const char*, const char*>> texts = {
      {"granite",
       "<think>t</think><response>r</response>\n<tool_call>{\"name\": \"now\", \"arguments\": "
       "{\"a\": \"<response>b</response>\"}}</tool_call></response>"},
      {"kimi_k3",
       "<|open|>response<|sep|>r<|close|>response<|sep|><|open|>tools<|sep|>"
       "<|open|>call tool=\"now\" index=\"1\"<|sep|><|open|>argument key=\"a\" type=\"string\""
       "<|sep|><|open|>response<|sep|>b<|close|>response<|sep|><|close|>message<|sep|>"
       "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>"}};
  for (const auto& [family, text] : texts) {
    const Answer answer = Parse(family, text);
    EXPECT_EQ(answer.content, "r") << family;
    ASSERT_EQ(answer.calls.size(), 1u) << answer.Show();
    EXPECT_NE(answer.calls[0].arguments.find("response"), std::string::npos) << answer.Show();
    EXPECT_NE(
        std::string_view(text).find(Json::parse(answer.calls[0].arguments)["a"].get<std::string>()),
        std::string_view::npos)
        << answer.Show();
    ExpectSameHoweverCut(family, text);
  }
  EXPECT_EQ(Parse("granite", "<response>a<resp", Options("", "")).content, "a<resp");
}

TEST(ChatParserTest, ATextThatEndsWithinTheEndOfACallHasTheWholeCall) {
  const std::vector<std::tuple<const char*, const char*, const char*>> texts = {
      {"deepseek_v3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{\"a\": "
       "1}",
       "\n```<｜tool▁call▁end｜>"},
      {"kimi", "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{\"a\": 1}",
       "<|tool_call_end|>"},
      {"gemma4", "<|tool_call>call:now{a:1}", "<tool_call|>"}};
  for (const auto& [family, call, end] : texts) {
    const std::string_view marker = end;
    for (size_t size = 0; size <= marker.size(); ++size) {
      const std::string text = std::string(call) + std::string(marker.substr(0, size));
      const Answer answer = Parse(family, text);
      EXPECT_EQ(answer.content, "") << text;
      ASSERT_EQ(answer.calls.size(), 1u) << text;
      EXPECT_EQ(answer.calls[0].arguments, "{\"a\": 1}") << text;
      ExpectSameHoweverCut(family, text);
    }
  }
  EXPECT_EQ(Parse("gemma4", "<|tool_call>call:now{a:1<tool_").content,
            "<|tool_call>call:now{a:1<tool_");
}

TEST(ChatParserTest, AttributesOfKimiK3HaveEntities) {
  const Answer answer =
      Parse("kimi_k3",
            "<|open|>tools<|sep|><|open|>call tool=\"a&amp;b\" index=\"1\"<|sep|>"
            "<|open|>argument key=\"say &quot;x&quot; &amp;amp; &lt;\" type=\"string\"<|sep|>&amp;"
            "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>");
  ASSERT_EQ(answer.calls.size(), 1u) << answer.Show();
  EXPECT_EQ(answer.calls[0].name, "a&b");
  EXPECT_EQ(answer.calls[0].arguments, "{\"say \\\"x\\\" &amp; &lt;\": \"&amp;\"}");
}

TEST(ChatParserTest, NamesComeBeforeArgumentsAndArgumentsInPieces) {
  const auto parser = FindParserFamily("hermes")->make(Options());
  const auto push = [&](std::string_view text) {
    AnswerDelta delta;
    parser->Push(text, delta);
    return delta;
  };
  EXPECT_EQ(push("Look <too").content, "Look");  // the space may separate a call
  EXPECT_TRUE(push("l_call>{\"name\": \"now\", \"argu").tool_calls.empty());
  const AnswerDelta begin = push("ments\": {\"a\": \"b");
  ASSERT_EQ(begin.tool_calls.size(), 1u);
  EXPECT_EQ(begin.tool_calls[0].name, "now");
  EXPECT_EQ(begin.tool_calls[0].arguments, "{\"a\": \"b");
  const AnswerDelta more = push("c\"}");
  ASSERT_EQ(more.tool_calls.size(), 1u);
  EXPECT_TRUE(more.tool_calls[0].name.empty() && more.tool_calls[0].id.empty());
  EXPECT_EQ(more.tool_calls[0].arguments, "c\"}");
  EXPECT_EQ(ToolCallsJson(more.tool_calls), R"([{"index": 0, "function": {"arguments": "c\"}"}}])");
}

TEST(ChatParserTest, OnlyTheBeginningOfAMarkerIsHeldBack) {
  for (const ParserFamily* family : ParserFamilies()) {
    const auto parser = family->make(Options());
    AnswerDelta delta;
    parser->Push("Well, a < b and [x] is", delta);
    EXPECT_EQ(delta.content, "Well, a < b and [x] is") << family->name;
  }
}

TEST(ChatParserTest, APromptThatOpensTheReasoningBeginsTheAnswerInside) {
  const Answer open =
      Parse("hermes", "a\n</think>\n\nb", Options("<|im_start|>assistant\n<think>\n"));
  EXPECT_EQ(open.reasoning, "a");
  EXPECT_EQ(open.content, "b");
  const Answer closed = Parse("hermes", "a b", Options("<think>\n\n</think>\n\n"));
  EXPECT_EQ(closed.reasoning, "");
  EXPECT_EQ(closed.content, "a b");
  EXPECT_EQ(Parse("hermes", "only this", Options("<think>")).reasoning, "only this");
  EXPECT_EQ(Parse("deepseek_v31", "a</think>b", Options("<｜Assistant｜><think>")).reasoning, "a");
}

TEST(ChatParserTest, WithoutOfferedFunctionsThereAreNoCalls) {
  for (const Case& each : Cases()) {
    const Answer answer = Parse(each.family, each.text, Options("", ""));
    EXPECT_TRUE(answer.calls.empty()) << each.text;
    EXPECT_EQ(answer.reasoning, each.reasoning);
  }
  EXPECT_EQ(Parse("hermes", "{\"a\": 1} \n", Options("", "")).content, "{\"a\": 1} \n");
}

TEST(ChatParserTest, IdsAreThoseOfTheModelOrOfTheFamilysForm) {
  const Answer kimi = Parse(
      "kimi", "<|tool_call_begin|>functions.now:3<|tool_call_argument_begin|>{}<|tool_call_end|>");
  EXPECT_EQ(kimi.calls.at(0).id, "functions.now:3");
  const Answer mistral =
      Parse("mistral", "[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]now[CALL_ID]abcdef123[ARGS]{}");
  EXPECT_EQ(mistral.calls.at(0).id.size(), 9u);
  EXPECT_EQ(mistral.calls.at(1).id, "abcdef123");
  const Answer hermes =
      Parse("hermes",
            "<tool_call>{\"name\": \"now\"}</tool_call><tool_call>{\"name\": \"now\"}</tool_call>");
  EXPECT_TRUE(hermes.calls.at(0).id.starts_with("call_"));
  EXPECT_EQ(hermes.calls.at(0).id.size(), 29u);
  EXPECT_NE(hermes.calls.at(0).id, hermes.calls.at(1).id);
}

TEST(ChatParserTest, LargeAndDeepTextsAreReadInBoundedStackAndLinearTime) {
  const std::string deep(100'000, '[');
  const std::string braces(100'000, '{');
  std::string large;
  while (large.size() < (10u << 20)) large += "<tool_call>{\"a\": \"[TOOL_CALLS]<｜tool <|chan\n\n";
  for (const ParserFamily* family : ParserFamilies()) {
    const std::string_view text =
        std::string_view(large).substr(0, family->name == "hermes" ? large.size() : 1u << 20);
    const Answer answer = Parse(family->name, text);
    EXPECT_GE(answer.content.size() + answer.reasoning.size(), text.size() / 2) << family->name;
    std::string marked;
    for (const std::string_view marker : family->markers)
      marked += std::string(marker) + deep + braces;
    (void)Parse(family->name, deep);
    (void)Parse(family->name, marked);
  }
  const std::string call = "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": " + deep;
  std::vector<std::string_view> pieces;
  for (size_t i = 0; i < call.size(); i += 4) pieces.push_back(std::string_view(call).substr(i, 4));
  EXPECT_EQ(ParsePieces("hermes", Options(), pieces).calls.at(0).arguments, "{\"a\": " + deep);
  EXPECT_EQ(Parse("llama", "[now(a=" + deep + ")]").content.size(), deep.size() + 9);
}

TEST(ChatParserTest, SchemasDecideTheTypesOfPlainText) {
  const auto json = [](const char* text, uint8_t bits) { return ArgumentJson(text, {bits}); };
  using Types = ArgumentTypes;
  EXPECT_EQ(json("5", Types::kString), "\"5\"");
  EXPECT_EQ(json(" 5 ", Types::kNumber), "5");
  EXPECT_EQ(json("five", Types::kNumber), "\"five\"");
  EXPECT_EQ(json("5", 0), "5");
  EXPECT_EQ(json("x\ny", 0), "\"x\\ny\"");
  EXPECT_EQ(json("False", Types::kBoolean), "false");
  EXPECT_EQ(json("null", Types::kString | Types::kNull), "null");
  EXPECT_EQ(json("5", Types::kString | Types::kNull), "\"5\"");
  EXPECT_EQ(json("{'a': [1, 'b']}", Types::kStructured), "{\"a\": [1, \"b\"]}");
  const auto schemas = *ToolSchemas::Parse(R"([{"name": "f", "parameters": {"properties": {
      "a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "b": {"enum": ["x", "y"]},
      "c": {"$ref": "#/x"}, "d": {"type": "string"}}}}])");
  EXPECT_EQ(schemas->TypesOf("f", "a").bits, Types::kNumber | Types::kNull);
  EXPECT_TRUE(schemas->TypesOf("f", "b").IsOnlyString());
  EXPECT_EQ(schemas->TypesOf("f", "c").bits, 0);
  EXPECT_EQ(schemas->TypesOf("g", "d").bits, 0);
  EXPECT_FALSE(ToolSchemas::Parse("{").ok());
  EXPECT_FALSE(ToolSchemas::Parse("{}").ok());
  EXPECT_EQ(*ToolSchemas::Parse("[]"), nullptr);
}

}  // namespace
}  // namespace nereid::tokenizer
