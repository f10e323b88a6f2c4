// The content blocks of an answer, and the events that announce them.
#include "host/frontend/openai/routes/messages_format.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_reader.h"
#include "host/frontend/http/json/json_writer.h"
#include "host/frontend/openai/fields/ordered_json.h"

namespace nereid::openai {
namespace {

using http::AppendLossyJsonString;
using Json = OrderedJson;

std::string_view StopReason(const Answer& answer) {
  if (answer.FinishReason() == "length") return "max_tokens";
  if (answer.FinishReason() == "tool_calls") return "tool_use";
  return answer.stop_reason.empty() ? "end_turn" : "stop_sequence";
}

class MessagesFormat final : public AnswerFormat {
 public:
  std::string Whole(const Answers& answers) override {
    const Answer& answer = answers.all[0];
    std::string json = Head(answers) + "\"content\":[";
    bool is_first = true;
    const auto begin_block = [&](std::string_view type) {
      json += std::exchange(is_first, false) ? "{\"type\":\"" : ",{\"type\":\"";
      json += type;
    };
    if (!answer.reasoning.empty()) {
      begin_block("thinking\",\"thinking\":");
      AppendLossyJsonString(json, answer.reasoning);
      json += ",\"signature\":\"\"}";
    }
    if (!answer.text.empty() || answer.tool_calls.empty()) {
      begin_block("text\",\"text\":");
      AppendLossyJsonString(json, answer.text);
      json += '}';
    }
    for (const ToolCallPiece& call : answer.tool_calls) {
      begin_block("tool_use\",\"id\":");
      AppendLossyJsonString(json, call.id);
      json += ",\"name\":";
      AppendLossyJsonString(json, call.name);
      json += ",\"input\":";
      // The parsers write JSON; a model of another kind may not.
      const bool is_object =
          ReadJsonObject<Json>(call.arguments, "arguments").ok() && !call.arguments.empty();
      json += is_object ? call.arguments : "{}";
      json += '}';
    }
    json += "],";
    AppendStop(json, answer);
    json += ",\"usage\":";
    AppendMessagesUsage(json, answers);
    json += '}';
    return json;
  }

  void AppendBegin(std::string& events, const Answers& answers) override {
    std::string data = R"({"type":"message_start","message":)" + Head(answers) +
                       R"("content":[],"stop_reason":null,"stop_sequence":null,"usage":)";
    AppendMessagesUsage(data, answers);
    AppendEvent(events, "message_start", data + "}}");
    AppendEvent(events, "ping", R"({"type":"ping"})");
  }

  void AppendPiece(std::string& events, const Answers&, size_t, const AnswerPiece& piece) override {
    if (!piece.reasoning.empty()) {
      OpenBlock(events, Block::kThinking, -1,
                R"({"type":"thinking","thinking":"","signature":""})");
      AppendDelta(events, "thinking_delta", "thinking", piece.reasoning);
    }
    if (!piece.text.empty()) {
      OpenBlock(events, Block::kText, -1, R"({"type":"text","text":""})");
      AppendDelta(events, "text_delta", "text", piece.text);
    }
    for (const ToolCallPiece& call : piece.tool_calls) {
      std::string block = R"({"type":"tool_use","id":)";
      AppendLossyJsonString(block, call.id);
      block += ",\"name\":";
      AppendLossyJsonString(block, call.name);
      OpenBlock(events, Block::kToolUse, call.index, block + ",\"input\":{}}");
      if (call.arguments.empty()) continue;
      AppendDelta(events, "input_json_delta", "partial_json", call.arguments);
    }
  }

  void AppendClosing(std::string& events, const Answers& answers) override {
    CloseBlock(events);
    std::string data = R"({"type":"message_delta","delta":{)";
    AppendStop(data, answers.all[0]);
    data += "},\"usage\":";
    AppendMessagesUsage(data, answers);
    AppendEvent(events, "message_delta", data + "}");
    AppendEvent(events, "message_stop", R"({"type":"message_stop"})");
  }

  void AppendError(std::string& events, const ApiError& error) override {
    AppendEvent(events, "error", MessagesErrorJson(error));
  }

  std::string_view KeepAlive() const override {
    return "event: ping\ndata: {\"type\":\"ping\"}\n\n";
  }
  std::string Error(const ApiError& error) const override { return MessagesErrorJson(error); }

 private:
  enum class Block { kNone, kThinking, kText, kToolUse };

  // Up to where the content follows.
  static std::string Head(const Answers& answers) {
    std::string json =
        "{\"id\":\"" + answers.id + "\",\"type\":\"message\",\"role\":\"assistant\",\"model\":";
    AppendLossyJsonString(json, answers.model);
    json += ',';
    return json;
  }

  static void AppendStop(std::string& json, const Answer& answer) {
    const std::string_view reason = StopReason(answer);
    json += StrCat("\"stop_reason\":\"", reason, "\",\"stop_sequence\":");
    if (reason == "stop_sequence") {
      AppendLossyJsonString(json, answer.stop_reason);
    } else {
      json += "null";
    }
  }

  static void AppendMessagesUsage(std::string& json, const Answers& answers) {
    const Usage usage = answers.TotalUsage();
    const int64_t cached = usage.cached_tokens.value_or(0);
    json += StrCat("{\"input_tokens\":", usage.prompt_tokens - cached,
                   ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":", cached,
                   ",\"output_tokens\":", usage.completion_tokens, "}");
  }

  static void AppendEvent(std::string& events, std::string_view name, std::string_view data) {
    events += "event: ";
    events += name;
    events += "\ndata: ";
    events += data;
    events += "\n\n";
  }

  // Begins a block unless it goes on.
  void OpenBlock(std::string& events, Block block, int64_t call, std::string_view content) {
    if (block_ == block && call_ == call) return;
    CloseBlock(events);
    block_ = block;
    call_ = call;
    AppendEvent(events, "content_block_start",
                StrCat(R"({"type":"content_block_start","index":)", index_,
                       ",\"content_block\":", content, "}"));
  }

  void CloseBlock(std::string& events) {
    if (std::exchange(block_, Block::kNone) == Block::kNone) return;
    AppendEvent(events, "content_block_stop",
                StrCat(R"({"type":"content_block_stop","index":)", index_++, "}"));
  }

  void AppendDelta(std::string& events, std::string_view type, std::string_view member,
                   std::string_view text) const {
    std::string data = StrCat(R"({"type":"content_block_delta","index":)", index_,
                              R"(,"delta":{"type":")", type, "\",\"", member, "\":");
    AppendLossyJsonString(data, text);
    AppendEvent(events, "content_block_delta", data + "}}");
  }

  Block block_ = Block::kNone;
  int64_t call_ = -1;  // the index of the open block's tool call
  int index_ = 0;      // of the open block, or of the next one
};

}  // namespace

std::unique_ptr<AnswerFormat> NewMessagesFormat() {
  return std::make_unique<MessagesFormat>();
}

std::string MessagesErrorJson(const ApiError& error) {
  std::string json = "{\"type\":\"error\",\"error\":{\"type\":\"";
  json += error.status >= 500 ? (error.status == 503 ? "overloaded_error" : "api_error")
                              : ErrorType(error.status);
  json += "\",\"message\":";
  AppendLossyJsonString(json, error.message);
  json += "}}";
  return json;
}

}  // namespace nereid::openai
