// Tests of the answers: outputs of a model become OpenAI's JSON, whole and as events.
#include <gtest/gtest.h>

#include <deque>
#include <nlohmann/json.hpp>

#include "host/frontend/openai/routes/chat_completions.h"
#include "host/frontend/openai/routes/completions.h"
#include "tests/host/frontend/openai/test_models.h"

namespace nereid::openai {
namespace {

using Json = nlohmann::json;

// Outputs of a model that the test writes.
class FakeOutputs {
 public:
  FakeOutputs& Texts(const char* name, const std::vector<std::string>& texts) {
    std::string& data = data_.emplace_back();
    for (const std::string& text : texts) {
      const auto size = static_cast<uint32_t>(text.size());
      data.append(reinterpret_cast<const char*>(&size), sizeof(size));
      data += text;
    }
    return Add(name, TRITONSERVER_TYPE_BYTES);
  }
  template <typename T>
  FakeOutputs& Numbers(const char* name, const std::vector<T>& values) {
    data_.emplace_back(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    return Add(name, std::is_same_v<T, float> ? TRITONSERVER_TYPE_FP32 : TRITONSERVER_TYPE_INT32);
  }
  Result<std::vector<AnswerPiece>> Read() const { return ReadAnswerPieces(views_); }

 private:
  FakeOutputs& Add(const char* name, TRITONSERVER_DataType datatype) {
    OutputView view{};
    view.name = name;
    view.datatype = datatype;
    view.base = data_.back().data();
    view.size_bytes = data_.back().size();
    views_.push_back(view);
    return *this;
  }
  std::deque<std::string> data_;
  std::vector<OutputView> views_;
};

TEST(AnswerPieceTest, OutputsBecomeAPiece) {
  const auto pieces =
      FakeOutputs()
          .Texts("text_output", {"hi"})
          .Texts("reasoning", {"hm"})
          .Texts("finish_reason", {"stop"})
          .Texts("stop_reason", {"42"})
          .Texts(
              "tool_calls",
              {R"([{"index":1,"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\""}}])"})
          .Numbers<int32_t>("sequence_index", {2})
          .Numbers<int32_t>("num_input_tokens", {5})
          .Numbers<int32_t>("num_output_tokens", {2})
          .Numbers<int32_t>("num_cached_tokens", {4})
          .Numbers<int32_t>("num_reasoning_tokens", {1})
          .Numbers<int32_t>("output_token_ids", {7, 8})
          .Texts("token_texts", {"h", "i"})
          .Numbers<float>("output_log_probs", {-0.5f, -1.0f})
          .Texts("top_token_texts", {"h", "x", "i", "y"})
          .Numbers<float>("top_logprobs", {-0.5f, -2.0f, -1.0f, -3.0f})
          .Read();
  ASSERT_TRUE(pieces.ok()) << pieces.status().message();
  ASSERT_EQ(pieces->size(), 1u);
  const AnswerPiece& piece = pieces->front();
  EXPECT_EQ(piece.sequence, 2u);
  EXPECT_EQ(piece.text, "hi");
  EXPECT_EQ(piece.reasoning, "hm");
  EXPECT_EQ(piece.stop_reason, "42");
  EXPECT_EQ(*piece.num_cached_tokens, 4);
  EXPECT_EQ(*piece.num_reasoning_tokens, 1);
  EXPECT_EQ(piece.token_ids, (std::vector<int64_t>{7, 8}));
  ASSERT_EQ(piece.tool_calls.size(), 1u);
  EXPECT_EQ(piece.tool_calls[0].index, 1);
  EXPECT_EQ(piece.tool_calls[0].arguments, "{\"a\"");
  ASSERT_EQ(piece.log_probs.size(), 2u);
  EXPECT_EQ(piece.log_probs[1].top[1].bytes, "y");
  EXPECT_EQ(piece.log_probs[1].top[1].log_prob, -3.0f);
}

TEST(AnswerPieceTest, AResponseOfSeveralSequencesHasAPieceForEach) {
  const auto pieces = FakeOutputs()
                          .Texts("text_output", {"a", "b"})
                          .Texts("finish_reason", {"stop", "length"})
                          .Numbers<int32_t>("num_input_tokens", {5})
                          .Numbers<int32_t>("num_output_tokens", {2, 3})
                          .Read();
  ASSERT_TRUE(pieces.ok());
  ASSERT_EQ(pieces->size(), 2u);
  EXPECT_EQ((*pieces)[1].sequence, 1u);
  EXPECT_EQ((*pieces)[1].text, "b");
  EXPECT_EQ((*pieces)[1].finish_reason, "length");
  EXPECT_EQ(*(*pieces)[1].num_output_tokens, 3);
  EXPECT_EQ(*(*pieces)[1].num_input_tokens, 5);
}

TEST(AnswerPieceTest, ACommonNumberOfTokensCountsOnce) {
  const auto pieces = FakeOutputs()
                          .Texts("text_output", {"a", "b", "c"})
                          .Numbers<int32_t>("num_output_tokens", {9})
                          .Read();
  ASSERT_TRUE(pieces.ok());
  EXPECT_EQ(*(*pieces)[0].num_output_tokens, 9);
  EXPECT_EQ(*(*pieces)[1].num_output_tokens, 0);
  EXPECT_EQ(*(*pieces)[2].num_output_tokens, 0);
}

TEST(AnswerPieceTest, OutputsThatContradictEachOtherAreAnErrorOfTheModel) {
  EXPECT_EQ(
      FakeOutputs().Texts("tool_calls", {"[{"}).Texts("text_output", {""}).Read().status().code(),
      StatusCode::kInternal);
  EXPECT_EQ(FakeOutputs().Numbers<int32_t>("text_output", {1}).Read().status().code(),
            StatusCode::kInternal);
  EXPECT_EQ(FakeOutputs()
                .Texts("text_output", {"a"})
                .Texts("token_texts", {"a"})
                .Numbers<float>("output_log_probs", {1, 2})
                .Read()
                .status()
                .code(),
            StatusCode::kInternal);
  EXPECT_FALSE(ReadTexts(std::string_view("\5\0\0\0a", 5)).ok());
  EXPECT_FALSE(ReadTexts("ab").ok());
  EXPECT_FALSE(ReadToolCalls("[]]").ok());
}

Answers OneCompletion() {
  Answers answers;
  answers.id = "chatcmpl-1";
  answers.created = 7;
  answers.model = "m\"";
  answers.all.resize(1);
  answers.prompt_tokens = {5};
  answers.cached_tokens = {std::nullopt};
  return answers;
}

TEST(ChatAnswerTest, AWholeAnswerHasTheMessageAndTheUsage) {
  Answers answers = OneCompletion();
  answers.all[0].text = "hi";
  answers.all[0].finish_reason = "length";
  answers.all[0].num_tokens = 3;
  answers.cached_tokens[0] = 4;
  answers.all[0].num_reasoning_tokens = 2;
  const Json json = Json::parse(NewChatFormat({})->Whole(answers));
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["model"], "m\"");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "hi");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(json["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(json["usage"], Json::parse(R"({"prompt_tokens":5,"completion_tokens":3,
      "total_tokens":8,"prompt_tokens_details":{"cached_tokens":4},
      "completion_tokens_details":{"reasoning_tokens":2}})"));
}

TEST(ChatAnswerTest, AWholeAnswerHasToolCallsReasoningAndLogProbabilities) {
  GenerationRequest request;
  request.has_log_probs = true;
  request.has_token_ids = true;
  Answers answers = OneCompletion();
  Answer& answer = answers.all[0];
  answer.reasoning = "hm";
  answer.tool_calls = {{0, "call_1", "f", "{}"}};
  answer.has_tool_calls = true;
  answer.finish_reason = "stop";
  answer.token_ids = {1, 2};
  answer.prompt_ids = {9};
  answer.log_probs = {{{"\xc3", -1e30f * 1e30f}, {{"a", -0.5f}}}};
  const Json json = Json::parse(NewChatFormat(request)->Whole(answers));
  const Json& choice = json["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  EXPECT_EQ(choice["message"]["reasoning_content"], "hm");
  EXPECT_EQ(choice["message"]["reasoning"], "hm");
  EXPECT_EQ(
      choice["message"]["tool_calls"][0],
      Json::parse(R"({"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}})"));
  const Json& token = choice["logprobs"]["content"][0];
  EXPECT_EQ(token["bytes"], Json::parse("[195]"));
  EXPECT_EQ(token["logprob"], -9999.0);
  EXPECT_EQ(token["top_logprobs"][0]["token"], "a");
  EXPECT_EQ(choice["token_ids"], Json::parse("[1,2]"));
  EXPECT_EQ(json["prompt_token_ids"], Json::parse("[9]"));
}

std::vector<Json> EventsOf(const std::string& events) {
  std::vector<Json> list;
  size_t start = 0;
  while (start < events.size()) {
    const size_t end = events.find("\n\n", start);
    EXPECT_EQ(events.substr(start, 6), "data: ");
    const std::string data = events.substr(start + 6, end - start - 6);
    list.push_back(data == "[DONE]" ? Json("DONE") : Json::parse(data));
    start = end + 2;
  }
  return list;
}

TEST(ChatAnswerTest, AStreamBeginsWithTheRoleAndEndsWithTheUsage) {
  GenerationRequest request;
  request.has_usage_event = true;
  Answers answers = OneCompletion();
  const auto format = NewChatFormat(request);
  std::string events;
  format->AppendBegin(events, answers);
  AnswerPiece piece;
  piece.text = "hi";
  format->AppendPiece(events, answers, 0, piece);
  piece.text.clear();
  piece.tool_calls = {{0, "call_1", "f", ""}, {0, "", "", "{}"}};
  format->AppendPiece(events, answers, 0, piece);
  answers.all[0].has_tool_calls = true;
  answers.all[0].finish_reason = piece.finish_reason = "stop";
  piece.tool_calls.clear();
  piece.reasoning = "r";
  format->AppendPiece(events, answers, 0, piece);
  format->AppendClosing(events, answers);
  const std::vector<Json> list = EventsOf(events);
  ASSERT_EQ(list.size(), 7u);
  EXPECT_EQ(list[0]["choices"][0]["delta"], Json::parse(R"({"role":"assistant","content":""})"));
  EXPECT_TRUE(list[0]["usage"].is_null());
  EXPECT_EQ(list[1]["choices"][0]["delta"], Json::parse(R"({"content":"hi"})"));
  EXPECT_EQ(list[1]["object"], "chat.completion.chunk");
  // Each piece of a call has a chunk of its own.
  EXPECT_EQ(
      list[2]["choices"][0]["delta"]["tool_calls"],
      Json::parse(
          R"([{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}}])"));
  EXPECT_EQ(list[3]["choices"][0]["delta"]["tool_calls"],
            Json::parse(R"([{"index":0,"function":{"arguments":"{}"}}])"));
  EXPECT_TRUE(list[3]["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(list[4]["choices"][0]["delta"],
            Json::parse(R"({"reasoning_content":"r","reasoning":"r"})"));
  EXPECT_EQ(list[4]["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(list[5]["choices"], Json::array());
  EXPECT_EQ(list[5]["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(list[6], "DONE");
}

TEST(ChatAnswerTest, AnErrorWithinAStreamIsItsLastEvent) {
  std::string events;
  NewChatFormat({})->AppendError(events, {.status = 500, .message = "m"});
  const std::vector<Json> list = EventsOf(events);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["error"],
            Json::parse(R"({"message":"m","type":"server_error","param":null,"code":null})"));
}

TEST(CompletionAnswerTest, LogProbabilitiesHaveTheOffsetsOfTheirTexts) {
  GenerationRequest request;
  request.has_log_probs = true;
  Answers answers = OneCompletion();
  const auto format = NewCompletionFormat(request);
  std::string events;
  format->AppendBegin(events, answers);
  AnswerPiece piece;
  piece.text = "ab";
  piece.log_probs = {{{"a", -0.5f}, {{"x", -1.5f}}}, {{"b", -0.25f}, {}}};
  format->AppendPiece(events, answers, 0, piece);
  piece.text = "c";
  piece.log_probs = {{{"c", -1.0f}, {}}};
  format->AppendPiece(events, answers, 0, piece);
  const std::vector<Json> list = EventsOf(events);
  EXPECT_EQ(list[0]["choices"][0]["logprobs"],
            Json::parse(R"({"tokens":["a","b"],"token_logprobs":[-0.5,-0.25],
                            "top_logprobs":[{"x":-1.5},{}],"text_offset":[0,1]})"));
  EXPECT_EQ(list[1]["choices"][0]["logprobs"]["text_offset"], Json::parse("[2]"));
  EXPECT_EQ(list[1]["object"], "text_completion");
}

TEST(ApiErrorTest, TheStatusFollowsFromTheKindOfError) {
  EXPECT_EQ(ToApiError(InvalidArgError("x")).status, 400);
  EXPECT_EQ(ToApiError(UnsupportedError("x")).status, 400);
  EXPECT_EQ(ToApiError(NotFoundError("x")).status, 404);
  EXPECT_EQ(ToApiError(UnavailableError("x")).status, 503);
  EXPECT_EQ(ToApiError(UnavailableError("[id: 1] Exceeds maximum queue size")).status, 429);
  EXPECT_EQ(ToApiError(InternalError("x")).status, 500);
  EXPECT_EQ(ToApiError(InvalidArgError("prompt of 9 tokens: the model's limit is 8 tokens, prompt "
                                       "and output together"))
                .code,
            "context_length_exceeded");
}

TEST(NewIdTest, IdsDiffer) {
  EXPECT_EQ(NewId("x-").size(), 34u);
  EXPECT_NE(NewId(""), NewId(""));
}

}  // namespace
}  // namespace nereid::openai
