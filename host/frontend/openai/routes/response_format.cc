// The items of an answer, and the events that announce them.
#include "host/frontend/openai/routes/response_format.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "host/frontend/openai/fields/ordered_json.h"

namespace nereid::openai {
namespace {

using Json = OrderedJson;

class ResponseFormat final : public AnswerFormat {
 public:
  ResponseFormat(ResponseChat request, StoreResponse store)
      : request_(std::move(request)), store_(std::move(store)) {}

  std::string Whole(const Answers& answers) override {
    const Answer& answer = answers.all[0];
    const std::string status = StatusOf(answer);
    if (!answer.reasoning.empty()) output_.push_back(ReasoningItem(answer.reasoning));
    if (!answer.text.empty() || answer.tool_calls.empty()) {
      output_.push_back(MessageItem(NewId("msg_"), answer.text, status));
    }
    for (const ToolCallPiece& call : answer.tool_calls) {
      output_.push_back(CallItem(NewId("fc_"), call, status));
    }
    return Complete(answers);
  }

  void AppendBegin(std::string& events, const Answers& answers) override {
    const std::string member = "\"response\":" + ResponseJson(answers, "in_progress");
    AppendEventOf(events, "response.created", member);
    AppendEventOf(events, "response.in_progress", member);
  }

  void AppendPiece(std::string& events, const Answers&, size_t, const AnswerPiece& piece) override {
    if (!piece.reasoning.empty()) {
      Open(events, Kind::kReasoning, {});
      AppendDelta(events, "response.reasoning_text.delta", piece.reasoning);
      call_.arguments += piece.reasoning;
    }
    if (!piece.text.empty()) {
      Open(events, Kind::kMessage, {});
      AppendDelta(events, "response.output_text.delta", piece.text);
      call_.arguments += piece.text;
    }
    for (const ToolCallPiece& call : piece.tool_calls) {
      Open(events, Kind::kCall, call);
      if (call.arguments.empty()) continue;
      AppendDelta(events, "response.function_call_arguments.delta", call.arguments);
      call_.arguments += call.arguments;
    }
  }

  void AppendClosing(std::string& events, const Answers& answers) override {
    if (kind_ == Kind::kNone && output_.empty()) Open(events, Kind::kMessage, {});
    const std::string status = StatusOf(answers.all[0]);
    Close(events, status);
    AppendEventOf(events, "response." + status, "\"response\":" + Complete(answers));
  }

  void AppendError(std::string& events, const ApiError& error) override {
    AppendEvent(events, "error",
                {{"code", error.code.empty() ? Json() : Json(error.code)},
                 {"message", error.message},
                 {"param", error.param.empty() ? Json() : Json(error.param)}});
  }

 private:
  enum class Kind { kNone, kReasoning, kMessage, kCall };

  static std::string StatusOf(const Answer& answer) {
    return answer.FinishReason() == "length" ? "incomplete" : "completed";
  }

  static Json ReasoningItem(const std::string& text) {
    return {{"id", NewId("rs_")},
            {"type", "reasoning"},
            {"summary", Json::array()},
            {"content", Json::array({{{"type", "reasoning_text"}, {"text", text}}})}};
  }
  static Json TextPart(const std::string& text) {
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", Json::array()},
            {"logprobs", Json::array()}};
  }
  static Json MessageItem(const std::string& id, const std::string& text,
                          const std::string& status) {
    return {{"id", id},
            {"type", "message"},
            {"role", "assistant"},
            {"status", status},
            {"content", Json::array({TextPart(text)})}};
  }
  static Json CallItem(const std::string& id, const ToolCallPiece& call,
                       const std::string& status) {
    return {{"id", id},          {"type", "function_call"},     {"call_id", call.id},
            {"name", call.name}, {"arguments", call.arguments}, {"status", status}};
  }

  std::string ResponseJson(const Answers& answers, const std::string& status) const {
    Json response = {{"id", answers.id},
                     {"object", "response"},
                     {"created_at", answers.created},
                     {"status", status},
                     {"model", answers.model},
                     {"error", nullptr},
                     {"incomplete_details", nullptr},
                     {"output", output_},
                     {"usage", nullptr}};
    if (status == "incomplete") {
      response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    }
    if (status != "in_progress") {
      const Usage usage = answers.TotalUsage();
      response["usage"] = {
          {"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens.value_or(0)}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens.value_or(0)}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
    }
    std::string json = Dump(response);
    json.back() = ',';
    return json + request_.echo + '}';
  }

  // The finished response, which is also stored.
  std::string Complete(const Answers& answers) {
    std::string json = ResponseJson(answers, StatusOf(answers.all[0]));
    if (store_ == nullptr) return json;
    std::string items = request_.items;
    items.pop_back();
    for (const Json& item : output_) {
      if (items.size() > 1) items += ',';
      items += Dump(item);
    }
    store_(json, items + ']');
    return json;
  }

  // `members`: those that follow the type and the number.
  void AppendEventOf(std::string& events, const std::string& type, std::string_view members) {
    events += StrCat("event: ", type, "\ndata: {\"type\":\"", type,
                     "\",\"sequence_number\":", sequence_number_++, ",", members, "}\n\n");
  }

  void AppendEvent(std::string& events, const std::string& type, const Json& data) {
    const std::string json = Dump(data);
    AppendEventOf(events, type, std::string_view(json).substr(1, json.size() - 2));
  }

  // Appends an event of the open item.
  void AppendItemEvent(std::string& events, const std::string& type, Json data) {
    data["item_id"] = item_id_;
    data["output_index"] = output_.size();
    if (kind_ != Kind::kCall) data["content_index"] = 0;
    AppendEvent(events, type, data);
  }

  void AppendDelta(std::string& events, const std::string& type, const std::string& text) {
    Json data = {{"delta", text}};
    if (kind_ == Kind::kMessage) data["logprobs"] = Json::array();
    AppendItemEvent(events, type, std::move(data));
  }

  // Begins an item unless it goes on.
  void Open(std::string& events, Kind kind, const ToolCallPiece& call) {
    if (kind_ == kind && (kind != Kind::kCall || call_.index == call.index)) return;
    Close(events, "completed");
    kind_ = kind;
    call_ = {call.index, call.id, call.name, ""};
    item_id_ = NewId(kind == Kind::kReasoning ? "rs_" : kind == Kind::kMessage ? "msg_" : "fc_");
    Json item = OpenItem("in_progress");
    if (kind != Kind::kCall) item["content"] = Json::array();
    AppendEvent(events, "response.output_item.added",
                {{"output_index", output_.size()}, {"item", item}});
    if (kind == Kind::kMessage) {
      AppendItemEvent(events, "response.content_part.added", {{"part", TextPart("")}});
    }
  }

  Json OpenItem(const std::string& status) const {
    const std::string& text = call_.arguments;
    if (kind_ == Kind::kMessage) return MessageItem(item_id_, text, status);
    if (kind_ == Kind::kCall) return CallItem(item_id_, call_, status);
    Json item = ReasoningItem(text);
    item["id"] = item_id_;
    return item;
  }

  void Close(std::string& events, const std::string& status) {
    if (kind_ == Kind::kNone) return;
    const std::string& text = call_.arguments;
    if (kind_ == Kind::kMessage) {
      AppendItemEvent(events, "response.output_text.done",
                      {{"text", text}, {"logprobs", Json::array()}});
      AppendItemEvent(events, "response.content_part.done", {{"part", TextPart(text)}});
    } else if (kind_ == Kind::kReasoning) {
      AppendItemEvent(events, "response.reasoning_text.done", {{"text", text}});
    } else {
      AppendItemEvent(events, "response.function_call_arguments.done",
                      {{"arguments", text}, {"name", call_.name}});
    }
    const Json item = OpenItem(status);
    AppendEvent(events, "response.output_item.done",
                {{"output_index", output_.size()}, {"item", item}});
    output_.push_back(item);
    kind_ = Kind::kNone;
  }

  const ResponseChat request_;
  const StoreResponse store_;
  std::vector<Json> output_;  // the finished items
  int64_t sequence_number_ = 0;
  // The open item of a stream. `call_.arguments` is its text so far, whatever its kind.
  Kind kind_ = Kind::kNone;
  std::string item_id_;
  ToolCallPiece call_;
};

}  // namespace

std::unique_ptr<AnswerFormat> NewResponseFormat(ResponseChat request, StoreResponse store) {
  return std::make_unique<ResponseFormat>(std::move(request), std::move(store));
}

}  // namespace nereid::openai
