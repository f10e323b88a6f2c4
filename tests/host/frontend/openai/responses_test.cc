// Tests of the responses: as a chat, their answers, and the store.
#include "host/frontend/openai/routes/responses.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "host/frontend/openai/calls/response_store.h"
#include "host/frontend/openai/routes/response_format.h"

namespace nereid::openai {
namespace {

using Json = nlohmann::json;

struct ConvertedResponse {
  Json chat, items, echo;
  ApiError error;  // status 0: none
};

ConvertedResponse ConvertResponse(const std::string& json, const std::string& earlier = "") {
  ConvertedResponse converted;
  converted.error.status = 0;
  ParsedBody body(json, 64);
  Status status = body.Read(kResponses);
  if (status.ok()) {
    const Result<ResponseChat> chat = ChatOfResponse(body, earlier);
    status = chat.status();
    if (chat.ok()) {
      converted.chat = Json::parse(chat->chat);
      converted.items = Json::parse(chat->items);
      converted.echo = Json::parse("{" + chat->echo + "}");
    }
  }
  if (!status.ok()) converted.error = body.ErrorOf(status);
  return converted;
}

TEST(ResponsesTest, AForcedToolIsThatOfAChat) {
  const auto choice = [](const std::string& json) {
    return ConvertResponse(R"({"model":"m","input":"a","tool_choice":)" + json + "}")
        .chat["tool_choice"];
  };
  EXPECT_EQ(choice(R"("required")"), "required");
  EXPECT_EQ(choice(R"({"type":"function","name":"f"})"),
            Json::parse(R"({"type":"function","function":{"name":"f"}})"));
}

TEST(ResponsesTest, ItemsBecomeMessages) {
  const ConvertedResponse converted =
      ConvertResponse(R"({"model":"m","instructions":"be brief","temperature":0.5,
      "max_output_tokens":5,"stream":true,"reasoning":{"effort":"low"},"store":false,
      "text":{"format":{"type":"text"}},"include":["reasoning.encrypted_content"],
      "tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":false}],
      "input":[
        {"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
        {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
        {"type":"message","role":"assistant","content":[{"type":"output_text","text":"c"}]},
        {"type":"function_call","call_id":"1","name":"f","arguments":"{}"},
        {"type":"function_call","call_id":"2","name":"g","arguments":"{}"},
        {"type":"function_call_output","call_id":"1","output":"r"},
        {"type":"function_call","call_id":"3","name":"f","arguments":"{}"}]})");
  ASSERT_EQ(converted.error.status, 0) << converted.error.message;
  const auto call = [](const char* id, const char* name) {
    return Json{
        {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", "{}"}}}};
  };
  EXPECT_EQ(converted.chat["messages"],
            Json({{{"role", "system"}, {"content", "be brief"}},
                  {{"role", "user"}, {"content", "a\nb"}},
                  {{"role", "assistant"},
                   {"content", "c"},
                   {"reasoning_content", "hm"},
                   {"tool_calls", {call("1", "f"), call("2", "g")}}},
                  {{"role", "tool"}, {"tool_call_id", "1"}, {"content", "r"}},
                  {{"role", "assistant"},
                   {"content", ""},
                   {"tool_calls", Json::array({call("3", "f")})}}}));
  EXPECT_EQ(converted.chat["max_tokens"], 5);
  EXPECT_EQ(converted.chat["reasoning_effort"], "low");
  EXPECT_EQ(converted.chat["tools"][0]["function"],
            Json::parse(R"({"name":"f","parameters":{"type":"object"}})"));
  EXPECT_EQ(converted.echo["store"], false);
  EXPECT_EQ(converted.echo["tools"][0]["name"], "f");
  EXPECT_EQ(converted.items.size(), 7u);
}

TEST(ResponsesTest, AnEarlierConversationComesFirst) {
  const ConvertedResponse converted =
      ConvertResponse(R"({"input":"next"})", R"([{"role":"user","content":"first"}])");
  EXPECT_EQ(converted.chat["messages"], Json::parse(R"([{"role":"user","content":"first"},
                                                        {"role":"user","content":"next"}])"));
  EXPECT_EQ(converted.items.size(), 2u);
}

TEST(ResponsesTest, AFaultIsNamedByItsPath) {
  const auto error = [](const std::string& input) {
    return ConvertResponse(R"({"input":)" + input + "}").error.message;
  };
  EXPECT_EQ(error("5"), "input: expected a string or an array of items, got number");
  EXPECT_EQ(error("[5]"), "input[0]: expected an object, got number");
  EXPECT_EQ(error(R"([{"content":"a"}])"), "input[0].role: this field is required");
  EXPECT_EQ(error(R"([{"type":"web_search_call"}])"),
            "input[0]: an item of type 'web_search_call' is not supported");
  EXPECT_EQ(error(R"([{"role":"user","content":[{"type":"input_image"}]}])"),
            "input[0].content[0]: a part of type 'input_image' is not supported, only text");
  EXPECT_EQ(ConvertResponse("{}").error.param, "input");
  EXPECT_EQ(ConvertResponse(R"({"input":"a","tools":[{"type":"web_search"}]})").error.param,
            "tools[0]");
  EXPECT_EQ(
      ConvertResponse(R"({"input":"a","text":{"format":{"type":"json_schema"}}})").error.param,
      "text.format.schema");
  EXPECT_EQ(ConvertResponse(R"({"input":"a","text":{"format":{"type":"xml"}}})").error.param,
            "text.format");
  EXPECT_EQ(ConvertResponse(R"({"input":"a","background":true})").error.param, "background");
}

Answers OneResponse() {
  Answers answers;
  answers.id = "resp_1";
  answers.created = 7;
  answers.model = "m";
  answers.all.resize(1);
  answers.prompt_tokens = {5};
  answers.cached_tokens = {2};
  answers.all[0].num_tokens = 4;
  return answers;
}

// The items of a response without their ids, which are random.
Json Bare(Json output) {
  for (Json& item : output) item.erase("id");
  return output;
}

TEST(ResponsesTest, AStreamAndAWholeAnswerEndInTheSameResponse) {
  Answers answers = OneResponse();
  std::string stored_json, stored_items;
  const auto store = [&](const std::string& json, std::string items) {
    stored_json = json;
    stored_items = std::move(items);
  };
  const auto stream = NewResponseFormat({"", R"([{"a":1}])", R"("x":1)"}, store);
  std::string events;
  stream->AppendBegin(events, answers);
  AnswerPiece piece;
  piece.reasoning = "r";
  piece.text = "a";
  stream->AppendPiece(events, answers, 0, piece);
  piece = AnswerPiece();
  piece.text = "b";
  piece.tool_calls = {{0, "1", "f", "{"}, {0, "", "", "}"}, {1, "2", "g", "[]"}};
  stream->AppendPiece(events, answers, 0, piece);
  answers.all[0].finish_reason = "stop";
  stream->AppendClosing(events, answers);

  std::vector<Json> list;
  for (size_t start = 0; start < events.size();) {
    const size_t line = events.find('\n', start);
    const size_t end = events.find("\n\n", start);
    list.push_back(Json::parse(events.substr(line + 7, end - line - 7)));
    EXPECT_EQ(events.substr(start + 7, line - start - 7), list.back()["type"]);
    EXPECT_EQ(list.back()["sequence_number"], list.size() - 1);
    start = end + 2;
  }
  EXPECT_EQ(list.front()["type"], "response.created");
  EXPECT_EQ(list.back()["type"], "response.completed");
  const Json streamed = list.back()["response"];
  EXPECT_EQ(streamed, Json::parse(stored_json));
  EXPECT_EQ(streamed["x"], 1);
  EXPECT_EQ(Json::parse(stored_items).size(), 5u);

  Answer& answer = answers.all[0];
  answer.reasoning = "r";
  answer.text = "ab";
  answer.tool_calls = {{0, "1", "f", "{}"}, {1, "2", "g", "[]"}};
  const Json whole =
      Json::parse(NewResponseFormat({"", "[]", R"("x":1)"}, nullptr)->Whole(answers));
  EXPECT_EQ(Bare(whole["output"]), Bare(streamed["output"]));
  EXPECT_EQ(whole["usage"], streamed["usage"]);
  EXPECT_EQ(whole["output"][1]["content"][0]["text"], "ab");
  EXPECT_EQ(whole["output"][2]["arguments"], "{}");
  answer.finish_reason = "length";
  const Json cut = Json::parse(NewResponseFormat({"", "[]", R"("x":1)"}, nullptr)->Whole(answers));
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"]["reason"], "max_output_tokens");
}

TEST(ResponseStoreTest, AClientFindsItsOwnResponses) {
  ResponseStore store({});
  store.Put("a", "key1", {"json", "items"});
  EXPECT_EQ(store.Find("a", "key1")->items, "items");
  EXPECT_FALSE(store.Find("a", "key2").has_value());
  EXPECT_FALSE(store.Remove("a", ""));
  EXPECT_TRUE(store.Remove("a", "key1"));
  EXPECT_FALSE(store.Find("a", "key1").has_value());
}

TEST(ResponseStoreTest, TheOldestLeaveFirst) {
  const ResponseStore::Clock::time_point start{};
  ResponseStore store({.max_count = 2, .max_bytes = 10000, .max_age = std::chrono::seconds(10)});
  store.Put("a", "", {"1", ""}, start);
  store.Put("b", "", {"2", ""}, start + std::chrono::seconds(5));
  store.Put("c", "", {"3", ""}, start + std::chrono::seconds(5));
  EXPECT_FALSE(store.Find("a", "", start).has_value());
  EXPECT_TRUE(store.Find("b", "", start).has_value());
  EXPECT_FALSE(store.Find("b", "", start + std::chrono::seconds(16)).has_value());
  store.Put("d", "", {std::string(10000, 'x'), ""}, start);
  EXPECT_FALSE(store.Find("d", "", start).has_value());
  store.Put("e", "", {std::string(6000, 'x'), ""}, start);
  store.Put("f", "", {std::string(6000, 'x'), ""}, start);
  EXPECT_FALSE(store.Find("e", "", start).has_value());
  EXPECT_TRUE(store.Find("f", "", start).has_value());
  ResponseStore none({.max_count = 0});
  none.Put("a", "", {"1", ""});
  EXPECT_FALSE(none.Find("a", "").has_value());
}

}  // namespace
}  // namespace nereid::openai
