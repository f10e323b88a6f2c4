#include "host/cli/chat_stream.h"

#include <gtest/gtest.h>

#include <vector>

namespace nereid::cli {
namespace {

std::vector<std::string> EventsOf(const std::string& stream, size_t piece) {
  EventReader reader;
  std::vector<std::string> events;
  for (size_t at = 0; at < stream.size(); at += piece) {
    reader.Append(std::string_view(stream).substr(at, piece));
    for (std::string data; reader.Next(data);) events.push_back(data);
  }
  return events;
}

TEST(EventReaderTest, FindsTheSameEventsHoweverTheStreamIsCut) {
  const std::string stream =
      ": keep-alive\n\ndata: {\"a\": 1}\n\nevent: x\ndata: b\r\ndata:c\r\n\r\ndata: [DONE]\n\n";
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    EXPECT_EQ(EventsOf(stream, piece), (std::vector<std::string>{"{\"a\": 1}", "b\nc", "[DONE]"}));
  }
}

TEST(ChatDeltaTest, HasContentReasoningAndFinishReason) {
  EXPECT_EQ(ParseChatDelta(R"({"choices": [{"delta": {"content": "hi"}}]})")->content, "hi");
  EXPECT_EQ(ParseChatDelta(R"({"choices": [{"delta": {"reasoning": "r"}}]})")->reasoning, "r");
  EXPECT_EQ(ParseChatDelta(R"({"choices": [{"delta": {"reasoning_content": "r"}}]})")->reasoning,
            "r");
  EXPECT_EQ(
      ParseChatDelta(R"({"choices": [{"delta": {}, "finish_reason": "stop"}]})")->finish_reason,
      "stop");
  EXPECT_EQ(ParseChatDelta(R"({"choices": [], "usage": {}})")->content, "");
  EXPECT_EQ(ParseChatDelta(R"({"error": {"message": "no"}})").status().message(), "no");
  EXPECT_FALSE(ParseChatDelta("x").ok());
  EXPECT_FALSE(ParseChatDelta("{}").ok());
}

TEST(ChatErrorTest, IsTheMessageOfTheServer) {
  EXPECT_EQ(ErrorText(R"({"error": {"message": "no such model"}})"), "no such model");
  EXPECT_EQ(ErrorText(R"({"error": "no such model"})"), "no such model");
  EXPECT_EQ(ErrorText("plain"), "plain");
}

}  // namespace
}  // namespace nereid::cli
