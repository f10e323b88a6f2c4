#include "host/frontend/openai/routes/conversation_fields.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "base/json_reader.h"
#include "host/frontend/http/json/json_writer.h"
#include "host/frontend/openai/fields/ordered_json.h"

namespace nereid::openai {
namespace {

constexpr size_t kMaxMessages = 16384;

bool IsAmong(std::string_view text, std::initializer_list<std::string_view> choices) {
  for (const std::string_view choice : choices) {
    if (text == choice) return true;
  }
  return false;
}

// Reads the messages and copies them.
class MessageReader {
 public:
  MessageReader(ParsedBody& body, const LlmSignature& model, const FieldValue& messages,
                std::string& json)
      : body_(body),
        model_(model),
        text_(messages.json),
        reader_(body.ReaderOf(messages)),
        json_(json) {}

  Status Read() {
    NEREID_RETURN_IF_ERROR(reader_.ReadArray([this] { return ReadMessage(); }));
    if (num_messages_ == 0) {
      return body_.Refuse("messages", "invalid_value", "messages: expected at least one message");
    }
    json_ += text_.substr(copied_);
    return Status::Ok();
  }

 private:
  template <typename... Args>
  Status Expect(http::JsonKind kind, std::string_view description, const Args&... path) {
    const http::JsonKind found = reader_.Peek();
    if (found == kind) return Status::Ok();
    const std::string where = StrCat(path...);
    return body_.Refuse(where, "invalid_type", where, ": expected ", description, ", got ",
                        http::Describe(found));
  }

  Status ReadMessage() {
    const size_t index = num_messages_++;
    if (index == kMaxMessages) {
      return body_.Refuse("messages", "invalid_value", "messages: expected at most ", kMaxMessages,
                          " messages");
    }
    NEREID_RETURN_IF_ERROR(Expect(http::JsonKind::kObject, "an object", "messages[", index, "]"));
    bool has_role = false, has_reasoning_content = false;
    std::string_view reasoning;
    NEREID_RETURN_IF_ERROR(reader_.ReadObject([&](std::string_view name) -> Status {
      const http::JsonKind kind = reader_.Peek();
      const size_t start = reader_.position();
      if (name == "role") {
        has_role = true;
        NEREID_RETURN_IF_ERROR(
            Expect(http::JsonKind::kString, "a string", "messages[", index, "].role"));
      } else if (name == "content" && kind == http::JsonKind::kArray) {
        return ReadParts(index);
      } else if (name == "content" && kind != http::JsonKind::kNull) {
        NEREID_RETURN_IF_ERROR(Expect(http::JsonKind::kString, "a string or an array of parts",
                                      "messages[", index, "].content"));
      } else if (name == "tool_calls" && kind != http::JsonKind::kNull) {
        NEREID_RETURN_IF_ERROR(
            Expect(http::JsonKind::kArray, "an array", "messages[", index, "].tool_calls"));
      }
      NEREID_RETURN_IF_ERROR(reader_.SkipValue());
      has_reasoning_content = has_reasoning_content || name == "reasoning_content";
      if (name == "reasoning" && kind == http::JsonKind::kString) {
        reasoning = text_.substr(start, reader_.position() - start);
      }
      return Status::Ok();
    }));
    if (!has_role) {
      const std::string path = StrCat("messages[", index, "].role");
      return body_.Refuse(path, "missing", path, ": this field is required");
    }
    if (reasoning.empty() || has_reasoning_content) return Status::Ok();
    const size_t brace = reader_.position() - 1;
    json_ += text_.substr(copied_, brace - copied_);
    json_ += ",\"reasoning_content\":";
    json_ += reasoning;
    copied_ = brace;
    return Status::Ok();
  }

  Status ReadParts(size_t index) {
    size_t part = 0;
    return reader_.ReadArray([&]() -> Status {
      const std::string path = StrCat("messages[", index, "].content[", part++, "]");
      if (reader_.Peek() == http::JsonKind::kString) return reader_.SkipValue();
      NEREID_RETURN_IF_ERROR(Expect(http::JsonKind::kObject, "an object", path));
      std::string type;
      bool has_text = false;
      NEREID_RETURN_IF_ERROR(reader_.ReadObject([&](std::string_view name) -> Status {
        if (name == "type") {
          NEREID_RETURN_IF_ERROR(Expect(http::JsonKind::kString, "a string", path, ".type"));
          NEREID_ASSIGN_OR_RETURN(type, reader_.ReadString());
          return Status::Ok();
        }
        if (name == "text") {
          has_text = true;
          NEREID_RETURN_IF_ERROR(Expect(http::JsonKind::kString, "a string", path, ".text"));
        }
        return reader_.SkipValue();
      }));
      if (type != "text") {
        return body_.Refuse(path, "unsupported_content", path, ": a part of type '",
                            type.substr(0, 40), "' is not supported by model '", model_.name,
                            "', which takes text only");
      }
      if (has_text) return Status::Ok();
      return body_.Refuse(path + ".text", "missing", path, ".text: this field is required");
    });
  }

  ParsedBody& body_;
  const LlmSignature& model_;
  const std::string_view text_;
  http::JsonReader reader_;
  std::string& json_;
  size_t copied_ = 0;  // bytes of text_ that json_ already contains
  size_t num_messages_ = 0;
};

// A JSON object of variables of the chat template.
class VariableWriter {
 public:
  // `value` is JSON.
  void Add(std::string_view name, std::string_view value) {
    names_.emplace_back(name);
    json_ += json_.empty() ? "{" : ",";
    http::AppendJsonString(json_, name);
    json_ += ':';
    json_ += value;
  }
  bool Has(std::string_view name) const {
    return std::find(names_.begin(), names_.end(), name) != names_.end();
  }
  // Empty without variables.
  std::string Take() { return json_.empty() ? std::string() : std::move(json_) + '}'; }

 private:
  std::string json_;
  std::vector<std::string> names_;
};

// Whether the prompt ends within the last message, or behind what begins the next one.
Status AddPromptEnd(ParsedBody& body, VariableWriter& variables) {
  const FieldValue* const prompt = body.Find("add_generation_prompt");
  if (body.BoolOr("continue_final_message", false)) {
    if (prompt != nullptr && prompt->boolean) {
      return body.Refuse("continue_final_message", "invalid_value",
                         "continue_final_message: not with 'add_generation_prompt': true, because "
                         "the prompt ends either within the last message or behind what begins the "
                         "next one");
    }
    variables.Add("continue_final_message", "true");
    variables.Add("add_generation_prompt", "false");
  } else if (prompt != nullptr && !prompt->boolean) {
    variables.Add("add_generation_prompt", "false");
  }
  return Status::Ok();
}

Status AddReasoningEffort(ParsedBody& body, VariableWriter& variables) {
  const FieldValue* const effort = body.Find("reasoning_effort");
  if (effort == nullptr) return Status::Ok();
  if (!IsAmong(effort->text, {"none", "minimal", "low", "medium", "high", "xhigh"})) {
    return body.Refuse(
        "reasoning_effort", "invalid_value",
        "reasoning_effort: expected none, minimal, low, medium, high or xhigh, got '",
        effort->text.substr(0, 40), "'");
  }
  variables.Add("reasoning_effort", effort->json);
  return Status::Ok();
}

// Those of chat_template_kwargs for which there is no field of the same name.
Status AddGivenVariables(ParsedBody& body, VariableWriter& variables) {
  const FieldValue* const given = body.Find("chat_template_kwargs");
  if (given == nullptr) return Status::Ok();
  http::JsonReader reader = body.ReaderOf(*given);
  const VariableWriter fields = variables;
  return reader.ReadObject([&](std::string_view name) -> Status {
    reader.SkipBlanks();
    const size_t start = reader.position();
    NEREID_RETURN_IF_ERROR(reader.SkipValue());
    if (fields.Has(name)) return Status::Ok();
    variables.Add(name, given->json.substr(start, reader.position() - start));
    return Status::Ok();
  });
}

}  // namespace

Status AppendMessages(ParsedBody& body, const LlmSignature& model, std::string& json) {
  const FieldValue* const messages = body.Find("messages");
  if (messages == nullptr) {
    return body.Refuse("messages", "missing", "messages: this field is required");
  }
  if (!model.can_chat()) {
    return body.Refuse("messages", "unsupported_parameter", "model '", model.name,
                       "' is no chat model: it has no input 'messages'");
  }
  return MessageReader(body, model, *messages, json).Read();
}

Status CheckTools(ParsedBody& body) {
  const FieldValue* const tools = body.Find("tools");
  if (tools == nullptr) return Status::Ok();
  http::JsonReader reader = body.ReaderOf(*tools);
  size_t index = 0;
  return reader.ReadArray([&]() -> Status {
    const std::string path = StrCat("tools[", index++, "]");
    if (reader.Peek() != http::JsonKind::kObject) {
      return body.Refuse(path, "invalid_type", path, ": expected an object, got ",
                         http::Describe(reader.Peek()));
    }
    std::string type;
    bool has_name = false;
    NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view name) -> Status {
      if (name == "type" && reader.Peek() == http::JsonKind::kString) {
        NEREID_ASSIGN_OR_RETURN(type, reader.ReadString());
        return Status::Ok();
      }
      if (name != "function" || reader.Peek() != http::JsonKind::kObject) {
        return reader.SkipValue();
      }
      return reader.ReadObject([&](std::string_view member) -> Status {
        has_name = has_name || (member == "name" && reader.Peek() == http::JsonKind::kString);
        return reader.SkipValue();
      });
    }));
    if (type != "function") {
      return body.Refuse(path + ".type", "unsupported_parameter", path, ".type: '",
                         type.substr(0, 40), "' is not supported, only 'function'");
    }
    if (has_name) return Status::Ok();
    return body.Refuse(path + ".function.name", "missing", path,
                       ".function.name: this field is required");
  });
}

Result<ToolUse> ReadToolUse(ParsedBody& body) {
  const FieldValue* const value = body.Find("tool_choice");
  const FieldValue* const tools = body.Find("tools");
  const bool has_tools = tools != nullptr && !tools->IsNeutral();
  if (value == nullptr) return ToolUse{.shows_tools = has_tools};
  NEREID_ASSIGN_OR_RETURN(const OrderedJson choice,
                          ReadJson<OrderedJson>(value->json, "tool_choice"));
  if (choice == "none") return ToolUse{};
  if (choice == "auto") return ToolUse{.shows_tools = has_tools};
  const std::string type = choice.is_object() ? TextOr(choice, "type") : "";
  if (choice != "required" && type != "function") {
    return body.Refuse("tool_choice", "unsupported_parameter",
                       "tool_choice: ", Dump(choice).substr(0, 60),
                       " is not supported, only 'auto', 'none', 'required' and objects of the "
                       "type 'function'");
  }
  if (!has_tools) {
    return body.Refuse("tool_choice", "invalid_value", "tool_choice: there are no 'tools'");
  }
  if (type.empty()) return ToolUse{.shows_tools = true, .forced = "required"};
  const OrderedJson* const function = Member(choice, "function");
  const std::string name =
      function != nullptr && function->is_object() ? TextOr(*function, "name") : "";
  if (name.empty()) {
    return body.Refuse("tool_choice", "missing",
                       "tool_choice: 'function.name' is required, a string");
  }
  NEREID_ASSIGN_OR_RETURN(const OrderedJson list, ReadJson<OrderedJson>(tools->json, "tools"));
  const bool is_known = std::any_of(list.begin(), list.end(), [&](const OrderedJson& tool) {
    return TextOr(tool["function"], "name") == name;
  });
  if (!is_known) {
    return body.Refuse("tool_choice", "invalid_value", "tool_choice: '", name.substr(0, 100),
                       "' is not among the tools");
  }
  const OrderedJson forced = {{"type", "function"}, {"function", {{"name", name}}}};
  return ToolUse{.shows_tools = true, .forced = Dump(forced)};
}

Result<std::string> TemplateVariables(ParsedBody& body) {
  VariableWriter variables;
  NEREID_RETURN_IF_ERROR(AddPromptEnd(body, variables));
  if (const FieldValue* const documents = body.Find("documents")) {
    variables.Add("documents", documents->json);
  }
  NEREID_RETURN_IF_ERROR(AddReasoningEffort(body, variables));
  NEREID_RETURN_IF_ERROR(AddGivenVariables(body, variables));
  const FieldValue* const effort = body.Find("reasoning_effort");
  if (effort != nullptr && effort->text == "none" && !variables.Has("enable_thinking")) {
    variables.Add("enable_thinking", "false");
  }
  return variables.Take();
}

}  // namespace nereid::openai
