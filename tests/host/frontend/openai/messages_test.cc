// Tests of the messages in Anthropic's form: as a chat, and the answers.
#include "host/frontend/openai/routes/messages.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "host/frontend/openai/routes/messages_format.h"

namespace nereid::openai {
namespace {

using Json = nlohmann::json;

struct ConvertedMessages {
  Json chat;
  ApiError error;  // status 0: none
};

ConvertedMessages ConvertMessages(const std::string& json, bool counts_tokens = false) {
  ConvertedMessages converted;
  converted.error.status = 0;
  ParsedBody body(json, 64);
  Status status = body.Read(kMessages);
  if (status.ok()) {
    const Result<std::string> chat = ChatOfMessages(body, counts_tokens, /*limits_reasoning=*/true);
    status = chat.status();
    if (chat.ok()) converted.chat = Json::parse(*chat);
  }
  if (!status.ok()) converted.error = body.ErrorOf(status);
  return converted;
}

TEST(MessagesTest, AConversationBecomesAChat) {
  const ConvertedMessages converted =
      ConvertMessages(R"({"model":"m","max_tokens":5,"temperature":0.5,"top_k":3,
      "system":[{"type":"text","text":"be brief"}],"stop_sequences":["x"],"stream":true,
      "thinking":{"type":"disabled"},"output_config":{"effort":"max"},"metadata":{"user_id":"u"},
      "tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}],
      "tool_choice":{"type":"auto","disable_parallel_tool_use":true},
      "messages":[
        {"role":"user","content":"hi"},
        {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},
          {"type":"text","text":"a"},{"type":"tool_use","id":"t1","name":"f","input":{"b":1}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"r"}]},
          {"type":"text","text":"go on","cache_control":{"type":"ephemeral"}}]}]})");
  ASSERT_EQ(converted.error.status, 0) << converted.error.message;
  EXPECT_EQ(converted.chat, Json::parse(R"({"model":"","max_tokens":5,"temperature":0.5,"top_k":3,
      "stop":["x"],"stream":true,"reasoning_effort":"xhigh","parallel_tool_calls":false,
      "chat_template_kwargs":{"enable_thinking":false},"tool_choice":"auto",
      "tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}],
      "messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hi"},
        {"role":"assistant","content":[{"type":"text","text":"a"}],"reasoning_content":"hm",
         "tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{\"b\":1}"}}]},
        {"role":"tool","tool_call_id":"t1","content":"r"},
        {"role":"user","content":[{"type":"text","text":"go on"}]}]})"));
}

TEST(MessagesTest, AForcedToolIsThatOfAChat) {
  const auto choice = [](const std::string& json) {
    return ConvertMessages(R"({"messages":[],"max_tokens":1,"tool_choice":)" + json + "}")
        .chat.at("tool_choice");
  };
  EXPECT_EQ(choice(R"({"type":"any"})"), "required");
  EXPECT_EQ(choice(R"({"type":"tool","name":"f"})"),
            Json::parse(R"({"type":"function","function":{"name":"f"}})"));
}

TEST(MessagesTest, AFaultIsNamedByItsPath) {
  const auto error = [](const std::string& messages) {
    return ConvertMessages(R"({"model":"m","max_tokens":1,"messages":)" + messages + "}")
        .error.message;
  };
  EXPECT_EQ(error("[3]"), "messages[0]: expected an object, got number");
  EXPECT_EQ(error(R"([{"role":"tool","content":"a"}])"),
            "messages[0].role: expected user, assistant or system, got 'tool'");
  EXPECT_EQ(error(R"([{"role":"user"}])"), "messages[0].content: this field is required");
  EXPECT_EQ(error(R"([{"role":"user","content":[{"type":"image"}]}])"),
            "messages[0].content[0]: a block of type 'image' is not supported here");
  EXPECT_EQ(error(R"([{"role":"user","content":[{"type":"tool_use"}]}])"),
            "messages[0].content[0]: a block of type 'tool_use' is not supported here");
  EXPECT_EQ(ConvertMessages(R"({"messages":[]})").error.param, "max_tokens");
  EXPECT_EQ(ConvertMessages(R"({"messages":[]})", /*counts_tokens=*/true).error.status, 0);
  EXPECT_EQ(ConvertMessages(R"({"max_tokens":1})").error.param, "messages");
  EXPECT_EQ(
      ConvertMessages(R"({"messages":[],"max_tokens":1,"tool_choice":{"type":"all"}})").error.param,
      "tool_choice");
  EXPECT_EQ(
      ConvertMessages(R"({"messages":[],"max_tokens":1,"tools":[{"type":"bash_1","name":"b"}]})")
          .error.param,
      "tools[0].type");
  EXPECT_EQ(ConvertMessages(R"({"messages":[],"max_tokens":1,"stop":["a"]})").error.code,
            "unknown_parameter");
}

Answers OneMessage() {
  Answers answers;
  answers.id = "msg_1";
  answers.model = "m";
  answers.all.resize(1);
  answers.prompt_tokens = {5};
  answers.cached_tokens = {2};
  answers.all[0].num_tokens = 4;
  return answers;
}

TEST(MessagesTest, AWholeAnswerHasBlocks) {
  Answers answers = OneMessage();
  Answer& answer = answers.all[0];
  answer.reasoning = "hm";
  answer.text = "hi";
  answer.tool_calls = {{0, "t1", "f", R"({"a":1})"}, {1, "t2", "g", "broken"}};
  answer.has_tool_calls = true;
  answer.finish_reason = "stop";
  EXPECT_EQ(Json::parse(NewMessagesFormat()->Whole(answers)),
            Json::parse(R"({"id":"msg_1","type":"message","role":"assistant","model":"m","content":[
                {"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"hi"},
                {"type":"tool_use","id":"t1","name":"f","input":{"a":1}},
                {"type":"tool_use","id":"t2","name":"g","input":{}}],
              "stop_reason":"tool_use","stop_sequence":null,
              "usage":{"input_tokens":3,"cache_creation_input_tokens":0,
                       "cache_read_input_tokens":2,"output_tokens":4}})"));
  answer = Answer();
  answer.finish_reason = "stop";
  answer.stop_reason = "x";
  const Json stopped = Json::parse(NewMessagesFormat()->Whole(answers));
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "x");
  EXPECT_EQ(stopped["content"], Json::parse(R"([{"type":"text","text":""}])"));
}

TEST(MessagesTest, AStreamOpensAndClosesItsBlocks) {
  Answers answers = OneMessage();
  const auto format = NewMessagesFormat();
  std::string events;
  format->AppendBegin(events, answers);
  AnswerPiece piece;
  piece.reasoning = "r";
  piece.text = "a";
  format->AppendPiece(events, answers, 0, piece);
  piece = AnswerPiece();
  piece.text = "b";
  format->AppendPiece(events, answers, 0, piece);
  piece = AnswerPiece();
  piece.tool_calls = {{0, "t1", "f", "{"}, {0, "", "", "}"}, {1, "t2", "g", ""}};
  format->AppendPiece(events, answers, 0, piece);
  answers.all[0].finish_reason = "length";
  format->AppendClosing(events, answers);
  std::vector<std::string> names;
  std::vector<Json> data;
  for (size_t start = 0; start < events.size();) {
    const size_t line = events.find('\n', start);
    const size_t end = events.find("\n\n", start);
    names.push_back(events.substr(start + 7, line - start - 7));
    data.push_back(Json::parse(events.substr(line + 7, end - line - 7)));
    EXPECT_EQ(data.back()["type"], names.back());
    start = end + 2;
  }
  const std::string start = "content_block_start", delta = "content_block_delta",
                    stop = "content_block_stop";
  EXPECT_EQ(names, (std::vector<std::string>{"message_start", "ping", start, delta, stop, start,
                                             delta, delta, stop, start, delta, delta, stop, start,
                                             stop, "message_delta", "message_stop"}));
  EXPECT_EQ(data[3]["delta"], Json::parse(R"({"type":"thinking_delta","thinking":"r"})"));
  EXPECT_EQ(data[7]["index"], 1);
  EXPECT_EQ(data[9]["content_block"],
            Json::parse(R"({"type":"tool_use","id":"t1","name":"f","input":{}})"));
  EXPECT_EQ(data[11]["delta"], Json::parse(R"({"type":"input_json_delta","partial_json":"}"})"));
  EXPECT_EQ(data[15]["delta"]["stop_reason"], "max_tokens");
  EXPECT_EQ(data[15]["usage"]["output_tokens"], 4);
}

}  // namespace
}  // namespace nereid::openai
