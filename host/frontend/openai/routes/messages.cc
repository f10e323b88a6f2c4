// Turns Anthropic's conversations into chats.
#include "host/frontend/openai/routes/messages.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/json_reader.h"
#include "host/frontend/openai/fields/ordered_json.h"

namespace nereid::openai {
namespace {

using Json = OrderedJson;

// Turns Anthropic's messages into OpenAI's.
class Conversion {
 public:
  explicit Conversion(ParsedBody& body) : body_(body) {}

  Result<Json> Messages() {
    NEREID_RETURN_IF_ERROR(AddSystem());
    const FieldValue* const messages = body_.Find("messages");
    if (messages == nullptr) return Missing("messages");
    NEREID_ASSIGN_OR_RETURN(const Json list, ReadJson<Json>(messages->json, "messages"));
    for (size_t i = 0; i < list.size(); ++i) {
      NEREID_RETURN_IF_ERROR(AddMessage(list[i], StrCat("messages[", i, "]")));
    }
    return std::move(chat_);
  }

  Result<Json> Tools(const FieldValue& value) {
    NEREID_ASSIGN_OR_RETURN(const Json list, ReadJson<Json>(value.json, "tools"));
    Json tools = Json::array();
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string path = StrCat("tools[", i, "]");
      if (!list[i].is_object()) return Mismatch(path, "an object", list[i]);
      const std::string type = TextOr(list[i], "type", "custom");
      if (type != "custom") {
        return body_.Refuse(path + ".type", "unsupported_parameter", path, ".type: '",
                            type.substr(0, 40), "' is not supported, only 'custom'");
      }
      if (TextOr(list[i], "name").empty()) return Missing(path + ".name");
      Json function = {{"name", list[i]["name"]}};
      if (const Json* const text = Member(list[i], "description")) function["description"] = *text;
      const Json* const schema = Member(list[i], "input_schema");
      function["parameters"] = schema == nullptr ? Json::object() : *schema;
      tools.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
    return tools;
  }

 private:
  Status Missing(const std::string& path) {
    return body_.Refuse(path, "missing", path, ": this field is required");
  }
  Status Mismatch(const std::string& path, std::string_view expected, const Json& found) {
    return body_.Refuse(path, "invalid_type", path, ": expected ", expected, ", got ",
                        found.type_name());
  }

  Status AddSystem() {
    const FieldValue* const system = body_.Find("system");
    if (system == nullptr) return Status::Ok();
    NEREID_ASSIGN_OR_RETURN(const Json content, ReadJson<Json>(system->json, "system"));
    NEREID_ASSIGN_OR_RETURN(const std::string text, TextOf(content, "system"));
    if (!text.empty()) chat_.push_back({{"role", "system"}, {"content", text}});
    return Status::Ok();
  }

  // The text of a content without other blocks.
  Result<std::string> TextOf(const Json& content, const std::string& path) {
    if (content.is_string()) return content.get<std::string>();
    if (!content.is_array()) return Mismatch(path, "a string or an array of blocks", content);
    std::string text;
    for (size_t i = 0; i < content.size(); ++i) {
      const std::string block_path = StrCat(path, "[", i, "]");
      if (!content[i].is_object()) return Mismatch(block_path, "an object", content[i]);
      if (TextOr(content[i], "type") != "text") return RefuseBlock(content[i], block_path);
      text += (i == 0 ? "" : "\n") + TextOr(content[i], "text");
    }
    return text;
  }

  Status RefuseBlock(const Json& block, const std::string& path) {
    return body_.Refuse(path, "unsupported_content", path, ": a block of type '",
                        TextOr(block, "type").substr(0, 40), "' is not supported here");
  }

  Status AddMessage(const Json& message, const std::string& path) {
    if (!message.is_object()) return Mismatch(path, "an object", message);
    const std::string role = TextOr(message, "role");
    if (role != "user" && role != "assistant" && role != "system") {
      return body_.Refuse(path + ".role", "invalid_value", path,
                          ".role: expected user, assistant or system, got '", role.substr(0, 40),
                          "'");
    }
    const Json* const content = Member(message, "content");
    if (content == nullptr) return Missing(path + ".content");
    if (role == "system" || content->is_string()) {
      NEREID_ASSIGN_OR_RETURN(const std::string text, TextOf(*content, path + ".content"));
      chat_.push_back({{"role", role}, {"content", text}});
      return Status::Ok();
    }
    if (!content->is_array()) {
      return Mismatch(path + ".content", "a string or an array of blocks", *content);
    }
    return AddBlocks(role, *content, path + ".content");
  }

  // Results of tools become messages of their own, before the text beside them.
  Status AddBlocks(const std::string& role, const Json& blocks, const std::string& path) {
    Json parts = Json::array(), calls = Json::array();
    std::string reasoning;
    bool has_results = false;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const std::string block_path = StrCat(path, "[", i, "]");
      const Json& block = blocks[i];
      if (!block.is_object()) return Mismatch(block_path, "an object", block);
      const std::string type = TextOr(block, "type");
      if (type == "text") {
        parts.push_back({{"type", "text"}, {"text", TextOr(block, "text")}});
      } else if (type == "tool_result" && role == "user") {
        has_results = true;
        const Json* const content = Member(block, "content");
        std::string text;
        if (content != nullptr) {
          NEREID_ASSIGN_OR_RETURN(text, TextOf(*content, block_path + ".content"));
        }
        chat_.push_back(
            {{"role", "tool"}, {"tool_call_id", TextOr(block, "tool_use_id")}, {"content", text}});
      } else if (type == "tool_use" && role == "assistant") {
        const Json* const input = Member(block, "input");
        calls.push_back({{"id", TextOr(block, "id")},
                         {"type", "function"},
                         {"function",
                          {{"name", TextOr(block, "name")},
                           {"arguments", input == nullptr ? "{}" : Dump(*input)}}}});
      } else if (type == "thinking" && role == "assistant") {
        reasoning += TextOr(block, "thinking");
      } else if (type != "redacted_thinking") {
        return RefuseBlock(block, block_path);
      }
    }
    if (parts.empty() && calls.empty() && has_results) return Status::Ok();
    Json message = {{"role", role}, {"content", parts}};
    if (parts.empty()) message["content"] = "";
    if (!reasoning.empty()) message["reasoning_content"] = reasoning;
    if (!calls.empty()) message["tool_calls"] = calls;
    chat_.push_back(std::move(message));
    return Status::Ok();
  }

  ParsedBody& body_;
  Json chat_ = Json::array();
};

Status ReadToolChoice(ParsedBody& body, Json& chat) {
  const FieldValue* const value = body.Find("tool_choice");
  if (value == nullptr) return Status::Ok();
  NEREID_ASSIGN_OR_RETURN(const Json choice, ReadJson<Json>(value->json, "tool_choice"));
  const std::string type = TextOr(choice, "type");
  if (type == "tool") {
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", TextOr(choice, "name")}}}};
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "auto" || type == "none") {
    chat["tool_choice"] = type;
  } else {
    return body.Refuse("tool_choice", "invalid_value", "tool_choice: type '", type.substr(0, 40),
                       "', expected auto, any, tool or none");
  }
  const Json* const is_single = Member(choice, "disable_parallel_tool_use");
  if (is_single != nullptr && is_single->is_boolean() && is_single->get<bool>()) {
    chat["parallel_tool_calls"] = false;
  }
  return Status::Ok();
}

// Reads the most tokens of the reasoning.
Status ReadThinkingBudget(ParsedBody& body, const Json& thinking, Json& chat) {
  const Json* const budget = Member(thinking, "budget_tokens");
  if (budget == nullptr) return Status::Ok();
  if (!budget->is_number_integer() || *budget < 0 || *budget > INT32_MAX) {
    return body.Refuse("thinking.budget_tokens", "invalid_value",
                       "thinking.budget_tokens: expected an integer from 0 to ", INT32_MAX);
  }
  chat["thinking_token_budget"] = *budget;
  return Status::Ok();
}

Status ReadThinking(ParsedBody& body, bool limits_reasoning, Json& chat) {
  if (const FieldValue* const value = body.Find("thinking")) {
    NEREID_ASSIGN_OR_RETURN(const Json thinking, ReadJson<Json>(value->json, "thinking"));
    const std::string type = TextOr(thinking, "type");
    if (type != "enabled" && type != "disabled" && type != "adaptive") {
      return body.Refuse("thinking.type", "invalid_value",
                         "thinking.type: expected enabled, disabled or adaptive, got '",
                         type.substr(0, 40), "'");
    }
    if (type != "adaptive") chat["chat_template_kwargs"]["enable_thinking"] = type == "enabled";
    if (type == "enabled" && limits_reasoning) {
      NEREID_RETURN_IF_ERROR(ReadThinkingBudget(body, thinking, chat));
    }
  }
  if (const FieldValue* const value = body.Find("output_config")) {
    NEREID_ASSIGN_OR_RETURN(const Json config, ReadJson<Json>(value->json, "output_config"));
    for (const auto& [name, member] : config.items()) {
      if (name != "effort") {
        return body.Refuse("output_config." + name, "unsupported_parameter", "output_config: '",
                           name.substr(0, 40), "' is not supported, only 'effort'");
      }
      const std::string effort = TextOr(config, "effort");
      chat["reasoning_effort"] = effort == "max" ? "xhigh" : effort;
    }
  }
  return Status::Ok();
}

}  // namespace

Result<std::string> ChatOfMessages(ParsedBody& body, bool counts_tokens, bool limits_reasoning) {
  Conversion conversion(body);
  Json chat = Json::object();
  chat["model"] = "";  // the caller knows it
  NEREID_ASSIGN_OR_RETURN(chat["messages"], conversion.Messages());
  if (const FieldValue* const max_tokens = body.Find("max_tokens")) {
    chat["max_tokens"] = max_tokens->integer;
  } else if (!counts_tokens) {
    return body.Refuse("max_tokens", "missing", "max_tokens: this field is required");
  }
  for (const char* const name : {"temperature", "top_p"}) {
    if (const FieldValue* const value = body.Find(name)) chat[name] = value->number;
  }
  if (const FieldValue* const value = body.Find("top_k")) chat["top_k"] = value->integer;
  if (const FieldValue* const stop = body.Find("stop_sequences")) chat["stop"] = stop->texts;
  if (body.BoolOr("stream", false)) chat["stream"] = true;
  if (const FieldValue* const tools = body.Find("tools")) {
    NEREID_ASSIGN_OR_RETURN(chat["tools"], conversion.Tools(*tools));
  }
  NEREID_RETURN_IF_ERROR(ReadToolChoice(body, chat));
  NEREID_RETURN_IF_ERROR(ReadThinking(body, limits_reasoning, chat));
  return Dump(chat);
}

}  // namespace nereid::openai
