// See chat_template.h.
#include "backends/tokenizer/lib/chat/chat_template.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/file_content.h"
#include "base/json_reader.h"

namespace nereid::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kConfig[] = "tokenizer_config.json";

// The file's text, or nothing if there is no such file.
Result<std::optional<std::string>> ReadOptional(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::optional<std::string>();
  NEREID_ASSIGN_OR_RETURN(std::string text, ReadFile(path.string(), kMaxTextFileBytes));
  return std::optional<std::string>(std::move(text));
}

// The text of a token that is written as a string or as an object with "content".
std::optional<std::string> TokenText(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content") && token["content"].is_string()) {
    return token["content"].get<std::string>();
  }
  return std::nullopt;
}

// Replaces a list of text parts by the text.
Status JoinParts(Json& content, size_t index) {
  std::string text;
  bool is_first = true;
  for (const Json& part : content) {
    const bool is_text = part.is_object() && part.contains("text") && part["text"].is_string();
    if (!is_text && !part.is_string()) {
      const std::string type = part.is_object() && part.contains("type") && part["type"].is_string()
                                   ? part["type"].get<std::string>()
                                   : part.type_name();
      return UnsupportedError("messages[", index, "].content: a part of type '", type.substr(0, 40),
                              "' is not supported, only text");
    }
    if (!std::exchange(is_first, false)) text += '\n';
    text +=
        is_text ? part["text"].get_ref<const std::string&>() : part.get_ref<const std::string&>();
  }
  content = std::move(text);
  return {};
}

// Replaces arguments that are JSON in a text by their value. Other texts stay.
void ParseArguments(Json& call) {
  Json& function = call.is_object() && call.contains("function") ? call["function"] : call;
  if (!function.is_object() || !function.contains("arguments")) return;
  Json& arguments = function["arguments"];
  if (!arguments.is_string()) return;
  Result<Json> parsed =
      ReadJson<Json>(arguments.get_ref<const std::string&>(), "arguments of a tool call");
  if (parsed.ok() && parsed->is_object()) arguments = std::move(parsed).value();
}

// Roles that templates know. Some templates build a special token of one, as "<|" + role + "|>", so
// these count as written by the template; any other role counts as a client's text.
bool IsKnownRole(const std::string& role) {
  constexpr std::array<std::string_view, 9> kRoles = {"assistant", "developer", "environment",
                                                      "function",  "ipython",   "observation",
                                                      "system",    "tool",      "user"};
  return std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
}

// The template's variable `messages`. Each message is an object with a role.
Result<jinja::Value> ToMessages(const Json& messages) {
  std::vector<jinja::Value> list;
  for (const Json& message : messages) {
    NEREID_ASSIGN_OR_RETURN(const jinja::Value value, jinja::FromJson(message, /*is_input=*/true));
    jinja::Dict fields = value.AsDict();
    const std::string& role = message["role"].get_ref<const std::string&>();
    if (IsKnownRole(role)) fields.Set(jinja::Value("role"), jinja::Value(role));
    list.emplace_back(std::move(fields));
  }
  return jinja::Value(jinja::List(std::move(list)));
}

// Replaces the arguments of all tool calls by their JSON text. False if there are none.
bool WriteArgumentsAsText(Json& messages) {
  bool has_arguments = false;
  for (Json& message : messages) {
    if (!message.contains("tool_calls") || !message["tool_calls"].is_array()) continue;
    for (Json& call : message["tool_calls"]) {
      Json& function = call.is_object() && call.contains("function") ? call["function"] : call;
      if (!function.is_object() || !function.contains("arguments")) continue;
      Json& arguments = function["arguments"];
      if (!arguments.is_object()) continue;
      arguments = arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
      has_arguments = true;
    }
  }
  return has_arguments;
}

// The value of a boolean variable.
Result<bool> BooleanVariable(const Json& variables, const char* name, bool fallback) {
  const auto found = variables.find(name);
  if (found == variables.end() || found->is_null()) return fallback;
  if (found->is_boolean()) return found->get<bool>();
  return InvalidArgError("template variable '", name, "': expected a boolean, got ",
                         found->type_name());
}

// The beginning of `prompt`, up to the end of the content of the last message. The content is
// searched among the bytes of the client, because templates may write the same text. Templates
// write it with or without the white space around it.
Result<MarkedText> CutBehindContent(const MarkedText& prompt, const Json& message) {
  constexpr std::string_view kSpaces = " \t\r\n\f\v";
  const auto member = message.find("content");
  std::string_view content;
  if (member != message.end() && member->is_string()) {
    content = member->get_ref<const std::string&>();
  }
  const size_t begin = std::min(content.find_first_not_of(kSpaces), content.size());
  const size_t end = content.find_last_not_of(kSpaces) + 1;
  if (begin >= end) {
    return InvalidArgError("continue_final_message: the last message has no text to continue");
  }
  const std::string_view text = content.substr(begin, end - begin), spaces = content.substr(end);
  const std::string_view bytes = prompt.bytes();
  for (auto range = prompt.input_ranges().rbegin(); range != prompt.input_ranges().rend();
       ++range) {
    const size_t at = bytes.substr(0, range->end).rfind(text);
    if (at == std::string_view::npos) break;
    if (at < range->begin) continue;
    const size_t behind = at + text.size();
    const bool keeps_spaces =
        behind + spaces.size() <= range->end && bytes.substr(behind, spaces.size()) == spaces;
    return prompt.Slice(0, keeps_spaces ? behind + spaces.size() : behind);
  }
  return InvalidArgError(
      "continue_final_message: the prompt does not contain the text of the last message as it is, "
      "because the chat template changes it");
}

Status PrepareMessage(Json& message, size_t index) {
  if (!message.is_object()) {
    return InvalidArgError("messages[", index, "]: expected an object, got ", message.type_name());
  }
  if (!message.contains("role") || !message["role"].is_string()) {
    return InvalidArgError("messages[", index, "].role: expected a text, got ",
                           message.contains("role") ? message["role"].type_name() : "nothing");
  }
  if (message.contains("content") && message["content"].is_array()) {
    NEREID_RETURN_IF_ERROR(JoinParts(message["content"], index));
  }
  if (message.contains("tool_calls") && message["tool_calls"].is_array()) {
    for (Json& call : message["tool_calls"]) ParseArguments(call);
  }
  return {};
}

bool IsFilledList(const Json& json) {
  return json.is_array() && !json.empty();
}

}  // namespace

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::Load(const std::string& directory) {
  const std::filesystem::path folder(directory);
  NEREID_ASSIGN_OR_RETURN(const std::optional<std::string> config, ReadOptional(folder / kConfig));
  NEREID_ASSIGN_OR_RETURN(std::optional<std::string> source,
                          ReadOptional(folder / "chat_template.jinja"));
  if (!source.has_value()) {
    NEREID_ASSIGN_OR_RETURN(const std::optional<std::string> file,
                            ReadOptional(folder / "chat_template.json"));
    if (file.has_value()) {
      NEREID_ASSIGN_OR_RETURN(const Json json, ReadJson<Json>(*file, "chat_template.json"));
      if (!json.is_object() || !json.contains("chat_template") ||
          !json["chat_template"].is_string()) {
        return InvalidArgError(
            "chat_template.json: expected an object with the text "
            "'chat_template'");
      }
      source = json["chat_template"].get<std::string>();
    }
  }
  return FromTexts(config.value_or(""), source.value_or(""));
}

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::FromTexts(std::string_view config,
                                                                    std::string_view source) {
  const std::shared_ptr<ChatTemplate> chat(new ChatTemplate);
  if (!source.empty()) {
    NEREID_ASSIGN_OR_RETURN(chat->default_, jinja::Template::Parse(source));
    chat->source_ = source;
  }
  if (!config.empty()) {
    NEREID_ASSIGN_OR_RETURN(const Json json, ReadJson<Json>(config, kConfig));
    NEREID_RETURN_IF_ERROR(chat->ReadConfig(json, !source.empty()));
  }
  if (chat->default_ == nullptr) return std::shared_ptr<const ChatTemplate>();
  return std::shared_ptr<const ChatTemplate>(chat);
}

Status ChatTemplate::ReadConfig(const Json& config, bool has_source) {
  if (!config.is_object()) {
    return InvalidArgError(kConfig, ": expected an object, got ", config.type_name());
  }
  for (const char* role : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    if (!config.contains(role)) continue;
    if (const std::optional<std::string> text = TokenText(config[role])) {
      special_tokens_.Set(jinja::Value(role), jinja::Value(*text));
    }
  }
  if (has_source || !config.contains("chat_template")) return {};
  const Json& source = config["chat_template"];
  if (source.is_null()) return {};
  if (source.is_array()) return ReadNamedTemplates(source);
  if (!source.is_string()) {
    return InvalidArgError(kConfig, ": chat_template: expected a text or a list, got ",
                           source.type_name());
  }
  source_ = source.get<std::string>();
  NEREID_ASSIGN_OR_RETURN(default_, jinja::Template::Parse(source_));
  return {};
}

Status ChatTemplate::ReadNamedTemplates(const Json& list) {
  for (const Json& entry : list) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("template") || !entry["template"].is_string()) {
      return InvalidArgError(kConfig,
                             ": chat_template: expected objects with the texts 'name' and "
                             "'template'");
    }
    const std::string& name = entry["name"].get_ref<const std::string&>();
    if (name != "default" && name != "tool_use") continue;
    const std::string& source = entry["template"].get_ref<const std::string&>();
    NEREID_ASSIGN_OR_RETURN((name == "default" ? default_ : tool_use_),
                            jinja::Template::Parse(source));
    source_.append(source).push_back('\n');
  }
  if (default_ == nullptr) default_ = tool_use_;
  return {};
}

Result<MarkedText> ChatTemplate::Render(Conversation conversation, const std::tm& now) const {
  Json& messages = conversation.messages;
  if (!messages.is_array() || messages.empty()) {
    return InvalidArgError("messages: expected a list with at least one message, got ",
                           messages.is_array() ? "none" : messages.type_name());
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    NEREID_RETURN_IF_ERROR(PrepareMessage(messages[i], i));
  }
  if (!conversation.tools.is_null() && !conversation.tools.is_array()) {
    return InvalidArgError("tools: expected a list, got ", conversation.tools.type_name());
  }
  if (!conversation.variables.is_null() && !conversation.variables.is_object()) {
    return InvalidArgError("template variables: expected an object, got ",
                           conversation.variables.type_name());
  }
  NEREID_ASSIGN_OR_RETURN(const bool continues,
                          BooleanVariable(conversation.variables, "continue_final_message", false));
  if (continues) {
    NEREID_ASSIGN_OR_RETURN(
        const bool adds_prompt,
        BooleanVariable(conversation.variables, "add_generation_prompt", false));
    if (adds_prompt) {
      return InvalidArgError(
          "continue_final_message: not with add_generation_prompt, because the prompt ends either "
          "within the last message or behind what begins the next one");
    }
    conversation.variables["add_generation_prompt"] = false;
    conversation.variables.erase("continue_final_message");
  }
  Result<MarkedText> text = RenderPrepared(conversation, now);
  if (!text.ok() && WriteArgumentsAsText(messages)) {
    // Some templates, such as DeepSeek's, append the arguments to a text as they are.
    Result<MarkedText> retried = RenderPrepared(conversation, now);
    if (retried.ok()) text = std::move(retried);
  }
  if (!text.ok() || !continues) return text;
  return CutBehindContent(*text, messages.back());
}

const jinja::Template& ChatTemplate::TemplateFor(const Conversation& conversation) const {
  return IsFilledList(conversation.tools) && tool_use_ != nullptr ? *tool_use_ : *default_;
}

Status ChatTemplate::CheckKnown(const Conversation& conversation) const {
  const jinja::Template& chosen = TemplateFor(conversation);
  if (IsFilledList(conversation.tools) && !chosen.Mentions("tools")) {
    return InvalidArgError("tools: the chat template does not know tools");
  }
  const Json& variables = conversation.variables;
  if (variables.is_object() && variables.contains("documents") &&
      IsFilledList(variables["documents"]) && !chosen.Mentions("documents")) {
    return InvalidArgError("documents: the chat template does not know documents");
  }
  return {};
}

Result<MarkedText> ChatTemplate::RenderPrepared(const Conversation& conversation,
                                                const std::tm& now) const {
  const bool has_tools = IsFilledList(conversation.tools);

  jinja::Dict context = special_tokens_;
  const auto set_input = [&](const char* name, const Json& json) -> Status {
    Result<jinja::Value> value = jinja::FromJson(json, /*is_input=*/true);
    if (!value.ok()) return std::move(value).status().WithContext(name);
    context.Set(jinja::Value(name), std::move(value).value());
    return {};
  };
  Result<jinja::Value> list = ToMessages(conversation.messages);
  if (!list.ok()) return std::move(list).status().WithContext("messages");
  context.Set(jinja::Value("messages"), std::move(list).value());
  NEREID_RETURN_IF_ERROR(set_input("tools", has_tools ? conversation.tools : Json()));
  context.Set(jinja::Value("documents"), jinja::Value());
  context.Set(jinja::Value("add_generation_prompt"),
              jinja::Value(conversation.add_generation_prompt));
  for (const auto& [name, value] : conversation.variables.items()) {
    NEREID_RETURN_IF_ERROR(set_input(name.c_str(), value));
  }
  return TemplateFor(conversation).Render(context, now);
}

}  // namespace nereid::tokenizer
