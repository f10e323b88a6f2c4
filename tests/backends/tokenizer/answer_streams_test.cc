// Answers that are parsed while their ids are decoded, and streams of them.
#include "backends/tokenizer/answer_streams.h"

#include <thread>

#include "backends/tokenizer/answer_parsing.h"
#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::tokenizer {
namespace {

// Byte-level, with the special tokens <tool_call> and </tool_call> beside <|end|>.
std::shared_ptr<const Tokenizer> MakeTokenizer() {
  nlohmann::json spec = ByteLevelSpec();
  for (const char* marker : {"<tool_call>", "</tool_call>"}) {
    nlohmann::json token = spec["added_tokens"][0];
    token["id"] = spec["added_tokens"].back()["id"].get<int>() + 1;
    token["content"] = marker;
    spec["added_tokens"].push_back(token);
  }
  return MustLoad(spec);
}

class AnswerStreamsTest : public ::testing::Test {
 protected:
  std::vector<int32_t> Ids(std::string_view text) const {
    return *tokenizer_->Encode(text, {.add_special_tokens = false});
  }
  std::unique_ptr<ParsedAnswer> Begin(bool skips = true) const {
    const auto tools = *ToolSchemas::Parse(R"([{"name": "f"}])");
    return parsing_.Begin({.tools = tools}, {.skip_special_tokens = skips});
  }
  Result<AnswerDelta> Push(AnswerStreams& streams, StreamPosition position, std::string_view text,
                           bool is_final = false) {
    return streams.Push(position, Ids(text), is_final, [&] { return Begin(); });
  }

  const std::shared_ptr<const Tokenizer> tokenizer_ = MakeTokenizer();
  const AnswerParsing parsing_{tokenizer_, *FindParserFamily("hermes")};
};

TEST_F(AnswerStreamsTest, MarkersAreSeenAndOtherSpecialTokensAreSkipped) {
  const auto ids =
      Ids("é<|end|>\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call><|end|>");
  const AnswerDelta answer = Begin()->Push(ids, true);
  EXPECT_EQ(answer.content, "é");
  ASSERT_EQ(answer.tool_calls.size(), 1u);
  EXPECT_EQ(answer.tool_calls[0].arguments, "{}");
  EXPECT_EQ(Begin(false)->Push(Ids("a<|end|>"), true).content, "a<|end|>");
}

TEST_F(AnswerStreamsTest, AStreamGivesWhatTheWholeAnswerGives) {
  const auto ids =
      Ids("<think>ü</think>é <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"ö\"}}");
  const AnswerDelta whole = Begin()->Push(ids, true);
  AnswerStreams streams({});
  AnswerDelta sum;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool is_final = i + 1 == ids.size();
    const auto delta = streams.Push({.stream = 5, .index = i}, std::span(ids).subspan(i, 1),
                                    is_final, [&] { return Begin(); });
    ASSERT_TRUE(delta.ok()) << delta.status().message();
    sum.reasoning += delta->reasoning;
    sum.content += delta->content;
    for (const ToolCallDelta& call : delta->tool_calls) {
      if (!call.name.empty()) sum.tool_calls.push_back({.id = call.id, .name = call.name});
      sum.tool_calls.at(call.index).arguments += call.arguments;
    }
  }
  EXPECT_EQ(sum.reasoning, whole.reasoning);
  EXPECT_EQ(sum.content, whole.content);
  EXPECT_EQ(ToolCallsJson(sum.tool_calls), ToolCallsJson(whole.tool_calls));
  EXPECT_EQ(streams.size(), 0u);
}

TEST_F(AnswerStreamsTest, TheTokensOfTheReasoningAreCounted) {
  const auto reasoning = Ids("<think>abc</think>"), content = Ids("def");
  std::vector<int32_t> ids = reasoning;
  ids.insert(ids.end(), content.begin(), content.end());
  int32_t count = 0;
  EXPECT_EQ(Begin()->Push(ids, true, &count).reasoning, "abc");
  // <think> counts from the token that completes it; here its bytes are tokens.
  EXPECT_EQ(count, static_cast<int32_t>(reasoning.size() - Ids("<think").size()));
  count = 0;
  (void)parsing_.Begin({.prompt_end = "<think>"}, {})->Push(Ids("abc"), true, &count);
  EXPECT_EQ(count, 3);
}

TEST_F(AnswerStreamsTest, AStreamWhoseAnswerWasDroppedGetsAnError) {
  AnswerStreams streams({.max_streams = 2});
  for (uint64_t stream = 1; stream <= 3; ++stream) {
    EXPECT_TRUE(Push(streams, {.stream = stream, .index = 0}, "a").ok());
  }
  EXPECT_EQ(streams.size(), 2u);
  const auto dropped = Push(streams, {.stream = 1, .index = 1}, "b");
  EXPECT_NE(dropped.status().message().find("at most 2 streams"), std::string::npos);
  EXPECT_EQ(Push(streams, {.stream = 2, .index = 1}, "b")->content, "b");
  EXPECT_FALSE(Push(streams, {.stream = 2, .index = 3}, "b").ok());
  EXPECT_TRUE(Push(streams, {.stream = 2, .index = 2}, "b", true).ok());
  EXPECT_EQ(streams.size(), 1u);

  AnswerStreams impatient({.max_idle_ns = 0});
  EXPECT_TRUE(Push(impatient, {.stream = 1, .index = 0}, "a").ok());
  EXPECT_TRUE(Push(impatient, {.stream = 2, .index = 0}, "a").ok());
  EXPECT_EQ(impatient.size(), 1u);
}

TEST_F(AnswerStreamsTest, AResponseWaitsForTheOneBeforeItInAnotherInstance) {
  AnswerStreams streams({.max_wait = std::chrono::seconds(60)});
  std::string content;
  std::thread second([&] { content = Push(streams, {.stream = 1, .index = 1}, "b")->content; });
  EXPECT_EQ(Push(streams, {.stream = 1, .index = 0}, "a")->content, "a");
  second.join();
  EXPECT_EQ(content, "b");
}

TEST(ChooseParserFamilyTest, TheTemplateChoosesUnlessTheParameterDoes) {
  EXPECT_EQ(*ChooseParserFamily("none", "<tool_call>"), nullptr);
  EXPECT_EQ((*ChooseParserFamily("", "<tool_call>"))->name, "hermes");
  EXPECT_EQ((*ChooseParserFamily("auto", "[TOOL_CALLS]"))->name, "mistral");
  EXPECT_EQ(*ChooseParserFamily("auto", "{{ messages }}"), nullptr);
  EXPECT_EQ((*ChooseParserFamily("glm", ""))->name, "glm");
  const auto unknown = ChooseParserFamily("gml", "");
  EXPECT_NE(unknown.status().message().find("auto, none, harmony"), std::string::npos);
}

}  // namespace
}  // namespace nereid::tokenizer
