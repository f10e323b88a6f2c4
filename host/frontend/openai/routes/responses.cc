// Turns the body of a response's request into that of a chat.
#include "host/frontend/openai/routes/responses.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "host/frontend/openai/fields/ordered_json.h"

namespace nereid::openai {
namespace {

using Json = OrderedJson;

// Turns the items of a conversation into messages.
class ItemConversion {
 public:
  explicit ItemConversion(ParsedBody& body) : body_(body) {}

  Status AddAll(const Json& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      const std::string path = StrCat("input[", i, "]");
      if (!items[i].is_object()) {
        return body_.Refuse(path, "invalid_type", path, ": expected an object, got ",
                            items[i].type_name());
      }
      NEREID_RETURN_IF_ERROR(Add(items[i], path));
    }
    return Status::Ok();
  }
  void AddText(std::string role, std::string text) {
    messages_.push_back({{"role", std::move(role)}, {"content", std::move(text)}});
  }
  Json TakeMessages() { return std::move(messages_); }

 private:
  Status Add(const Json& item, const std::string& path) {
    const std::string type = TextOr(item, "type", "message");
    if (type == "message") return AddMessage(item, path);
    if (type == "function_call") {
      AssistantMessage()["tool_calls"].push_back(
          {{"id", TextOr(item, "call_id")},
           {"type", "function"},
           {"function",
            {{"name", TextOr(item, "name")}, {"arguments", TextOr(item, "arguments")}}}});
      return Status::Ok();
    }
    if (type == "function_call_output") {
      NEREID_ASSIGN_OR_RETURN(std::string text, TextOf(item, "output", path));
      messages_.push_back({{"role", "tool"},
                           {"tool_call_id", TextOr(item, "call_id")},
                           {"content", std::move(text)}});
      return Status::Ok();
    }
    if (type == "reasoning") {
      const Json* const content = Member(item, "content");
      if (content != nullptr && !content->empty()) {
        NEREID_ASSIGN_OR_RETURN(reasoning_, TextOf(item, "content", path));
      }
      return Status::Ok();
    }
    return body_.Refuse(path + ".type", "unsupported_content", path, ": an item of type '",
                        type.substr(0, 40), "' is not supported");
  }

  Status AddMessage(const Json& item, const std::string& path) {
    const std::string role = TextOr(item, "role");
    if (role.empty()) {
      return body_.Refuse(path + ".role", "missing", path, ".role: this field is required");
    }
    NEREID_ASSIGN_OR_RETURN(std::string text, TextOf(item, "content", path));
    if (role == "assistant" && !reasoning_.empty()) {
      AssistantMessage()["content"] = std::move(text);
    } else {
      AddText(role, std::move(text));
    }
    return Status::Ok();
  }

  // The message that calls and reasoning of the model belong to.
  Json& AssistantMessage() {
    if (messages_.empty() || messages_.back()["role"] != "assistant") AddText("assistant", "");
    Json& message = messages_.back();
    if (!reasoning_.empty()) message["reasoning_content"] = std::exchange(reasoning_, {});
    return message;
  }

  // A text or a list of parts with texts.
  Result<std::string> TextOf(const Json& item, const char* member, const std::string& path) {
    const Json* const content = Member(item, member);
    const std::string where = StrCat(path, ".", member);
    if (content == nullptr) return std::string();
    if (content->is_string()) return content->get<std::string>();
    if (!content->is_array()) {
      return body_.Refuse(where, "invalid_type", where,
                          ": expected a string or an array of parts, got ", content->type_name());
    }
    std::string text;
    for (size_t i = 0; i < content->size(); ++i) {
      const Json& part = (*content)[i];
      const std::string type = part.is_object() ? TextOr(part, "type") : part.type_name();
      if (type != "input_text" && type != "output_text" && type != "text" &&
          type != "reasoning_text" && type != "summary_text") {
        return body_.Refuse(StrCat(where, "[", i, "]"), "unsupported_content", where, "[", i,
                            "]: a part of type '", type.substr(0, 40),
                            "' is not supported, only text");
      }
      text += (i == 0 ? "" : "\n") + TextOr(part, "text");
    }
    return text;
  }

  ParsedBody& body_;
  Json messages_ = Json::array();
  std::string reasoning_;  // of the next message of the model
};

Result<Json> ReadTools(ParsedBody& body, const Json& list) {
  Json tools = Json::array();
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string path = StrCat("tools[", i, "]");
    const std::string type = list[i].is_object() ? TextOr(list[i], "type") : "";
    if (type != "function") {
      return body.Refuse(path, "unsupported_parameter", path, ": type '", type.substr(0, 40),
                         "' is not supported, only 'function'");
    }
    if (TextOr(list[i], "name").empty()) {
      return body.Refuse(path + ".name", "missing", path, ".name: this field is required");
    }
    Json function = {{"name", list[i]["name"]}};
    for (const char* const name : {"description", "parameters"}) {
      if (const Json* const member = Member(list[i], name)) function[name] = *member;
    }
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

Status ReadReasoning(ParsedBody& body, Json& chat) {
  const FieldValue* const value = body.Find("reasoning");
  if (value == nullptr) return Status::Ok();
  NEREID_ASSIGN_OR_RETURN(const Json reasoning, ReadJson<Json>(value->json, "reasoning"));
  if (const Json* const effort = Member(reasoning, "effort")) chat["reasoning_effort"] = *effort;
  return Status::Ok();
}

// Turns text.format into the response_format of a chat.
Status ReadFormat(ParsedBody& body, Json& chat) {
  const FieldValue* const value = body.Find("text");
  if (value == nullptr) return Status::Ok();
  NEREID_ASSIGN_OR_RETURN(const Json text, ReadJson<Json>(value->json, "text"));
  const Json* const format = Member(text, "format");
  if (format == nullptr) return Status::Ok();
  const std::string type = format->is_object() ? TextOr(*format, "type") : "";
  if (type == "text") return Status::Ok();
  if (type == "json_object") {
    chat["response_format"] = {{"type", type}};
    return Status::Ok();
  }
  if (type != "json_schema") {
    return body.Refuse("text.format", "invalid_value", "text.format: type '", type.substr(0, 40),
                       "', expected text, json_object or json_schema");
  }
  const Json* const schema = Member(*format, "schema");
  if (schema == nullptr || !(schema->is_object() || schema->is_boolean())) {
    return body.Refuse("text.format.schema", "missing",
                       "text.format.schema: this field is required, an object");
  }
  chat["response_format"] = {{"type", type}, {"json_schema", {{"schema", *schema}}}};
  return Status::Ok();
}

// What the response repeats of the request.
std::string EchoOf(const ParsedBody& body, const Json& tools) {
  Json echo = Json::object();
  const auto text_or_null = [&](const char* name) {
    const FieldValue* const value = body.Find(name);
    echo[name] = value == nullptr ? Json() : Json(value->text);
  };
  text_or_null("instructions");
  text_or_null("previous_response_id");
  const FieldValue* const max_tokens = body.Find("max_output_tokens");
  echo["max_output_tokens"] = max_tokens == nullptr ? Json() : Json(max_tokens->integer);
  for (const char* const name : {"temperature", "top_p"}) {
    const FieldValue* const value = body.Find(name);
    echo[name] = value == nullptr ? 1.0 : value->number;
  }
  echo["parallel_tool_calls"] = body.BoolOr("parallel_tool_calls", true);
  echo["store"] = body.BoolOr("store", true);
  echo["tools"] = tools;
  const FieldValue* const text = body.Find("text");
  echo["text"] = {{"format", {{"type", "text"}}}};
  if (text != nullptr) {
    // The text was read before, so that this cannot fail.
    const Result<Json> given = ReadJson<Json>(text->json, "text");
    if (given.ok() && Member(*given, "format") != nullptr) echo["text"] = *given;
  }
  echo["truncation"] = "disabled";
  const FieldValue* const choice = body.Find("tool_choice");
  const FieldValue* const metadata = body.Find("metadata");
  std::string json = Dump(echo);
  json.pop_back();
  json += ",\"tool_choice\":";
  json += choice == nullptr ? "\"auto\"" : choice->json;
  json += ",\"metadata\":";
  json += metadata == nullptr ? "{}" : metadata->json;
  return json.substr(1);
}

}  // namespace

Result<ResponseChat> ChatOfResponse(ParsedBody& body, std::string_view earlier_items) {
  const FieldValue* const input = body.Find("input");
  if (input == nullptr) return body.Refuse("input", "missing", "input: this field is required");
  Json items = Json::array();
  if (!earlier_items.empty()) {
    NEREID_ASSIGN_OR_RETURN(items, ReadJson<Json>(earlier_items, "stored response"));
  }
  NEREID_ASSIGN_OR_RETURN(Json given, ReadJson<Json>(input->json, "input"));
  if (given.is_string()) {
    given = Json::array({{{"type", "message"}, {"role", "user"}, {"content", given}}});
  }
  if (!given.is_array()) {
    return body.Refuse("input", "invalid_type",
                       "input: expected a string or an array of items, got ", given.type_name());
  }
  ItemConversion conversion(body);
  if (const FieldValue* const instructions = body.Find("instructions")) {
    conversion.AddText("system", std::string(instructions->text));
  }
  NEREID_RETURN_IF_ERROR(conversion.AddAll(items));
  NEREID_RETURN_IF_ERROR(conversion.AddAll(given));
  for (Json& item : given) items.push_back(std::move(item));

  Json chat = {{"model", ""}, {"messages", conversion.TakeMessages()}};
  Json tools = Json::array();
  if (const FieldValue* const value = body.Find("tools")) {
    NEREID_ASSIGN_OR_RETURN(tools, ReadJson<Json>(value->json, "tools"));
    NEREID_ASSIGN_OR_RETURN(chat["tools"], ReadTools(body, tools));
  }
  if (const FieldValue* const choice = body.Find("tool_choice")) {
    NEREID_ASSIGN_OR_RETURN(Json chosen, ReadJson<Json>(choice->json, "tool_choice"));
    if (chosen.is_object() && TextOr(chosen, "type") == "function") {
      chosen = {{"type", "function"}, {"function", {{"name", TextOr(chosen, "name")}}}};
    }
    chat["tool_choice"] = std::move(chosen);
  }
  if (!body.BoolOr("parallel_tool_calls", true)) chat["parallel_tool_calls"] = false;
  if (const FieldValue* const value = body.Find("max_output_tokens")) {
    chat["max_tokens"] = value->integer;
  }
  for (const char* const name : {"temperature", "top_p"}) {
    if (const FieldValue* const value = body.Find(name)) chat[name] = value->number;
  }
  if (body.BoolOr("stream", false)) chat["stream"] = true;
  NEREID_RETURN_IF_ERROR(ReadFormat(body, chat));
  NEREID_RETURN_IF_ERROR(ReadReasoning(body, chat));
  return ResponseChat{Dump(chat), Dump(items), EchoOf(body, tools)};
}

}  // namespace nereid::openai
