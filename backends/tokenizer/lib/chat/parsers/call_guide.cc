// See call_guide.h.
#include "backends/tokenizer/lib/chat/parsers/call_guide.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "backends/tokenizer/lib/chat/parsers/json_text.h"
#include "backends/tokenizer/lib/chat/parsers/text_machine.h"
#include "backends/tokenizer/lib/chat/parsers/tool_schemas.h"
#include "base/json_reader.h"

namespace nereid::tokenizer {
namespace {

using Json = nlohmann::ordered_json;  // properties keep the order of the schema

// Null where the object has no such member, or JSON null.
const Json* GivenMember(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string TextOf(const Json* value) {
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

// The schema of the arguments, which are an object whatever the function's schema says.
Result<Json> ArgumentsSchema(const Json& function, const std::string& path) {
  const Json* const parameters = GivenMember(function, "parameters");
  if (parameters == nullptr) return Json{{"type", "object"}, {"additionalProperties", false}};
  if (parameters->is_boolean() && parameters->get<bool>()) return Json{{"type", "object"}};
  if (!parameters->is_object()) {
    return InvalidArgError(path, ".parameters: expected a schema of objects");
  }
  Json schema = *parameters;
  const Json* const type = GivenMember(schema, "type");
  const bool allows_objects =
      type == nullptr || *type == "object" ||
      (type->is_array() && std::find(type->begin(), type->end(), Json("object")) != type->end());
  if (!allows_objects) {
    return InvalidArgError(path, ".parameters.type: expected 'object', the arguments of a call");
  }
  schema["type"] = "object";
  return schema;
}

Json ConstText(std::string text) {
  return {{"type", "const_string"}, {"value", std::move(text)}};
}

// The text that ends the reasoning, if the prompt has opened it.
std::string ReasoningEnd(const ParserFamily& family, const CallForm& form,
                         std::string_view prompt_end) {
  while (!prompt_end.empty() && parsers::IsSpace(prompt_end.back())) prompt_end.remove_suffix(1);
  const bool has_begun = HasBegunReasoning(family, prompt_end);
  if (has_begun && !form.reasoning_end.empty()) return form.reasoning_end;
  // Some families know these tags beside their own.
  const auto& markers = family.markers;
  const bool has_tags = family.reasoning.end == "</think>" ||
                        std::find(markers.begin(), markers.end(), "</think>") != markers.end();
  if (has_tags && prompt_end.ends_with("<think>")) return "</think>\n\n";
  return has_begun ? std::string(family.reasoning.end) : "";
}

// The names of the arguments of `function` that are texts whatever they look like.
Json TextsOf(const Json& description, const std::string& function, const ToolSchemas& schemas) {
  Json texts = Json::array();
  const Json* const parameters = GivenMember(description, "parameters");
  const Json* const properties =
      parameters == nullptr ? nullptr : GivenMember(*parameters, "properties");
  if (properties == nullptr || !properties->is_object()) return texts;
  for (const auto& [name, schema] : properties->items()) {
    if (schemas.TypesOf(function, name).IsOnlyString()) texts.push_back(name);
  }
  return texts;
}

// The form of the arguments of one function.
Result<Json> ContentOf(const CallForm& form, const Json& description, const std::string& path,
                       const ToolSchemas* schemas) {
  NEREID_ASSIGN_OR_RETURN(Json schema, ArgumentsSchema(description, path));
  if (form.notation.is_null()) {
    return Json{{"type", "json_schema"}, {"json_schema", std::move(schema)}};
  }
  Json notation = form.notation;
  if (form.takes_text_names && schemas != nullptr) {
    const std::string name = TextOf(GivenMember(description, "name"));
    notation["members"]["texts"] = TextsOf(description, name, *schemas);
  }
  return Json{
      {"type", "arguments"}, {"json_schema", std::move(schema)}, {"notation", std::move(notation)}};
}

bool CanBeCalled(const CallForm& form, std::string_view name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  if (!parsers::IsFunctionName(name)) return false;
  if (!form.has_python_name) return true;
  return is_letter(name[0]) && std::all_of(name.begin(), name.end(), [&](char c) {
           return is_letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '-';
         });
}

// One tag for each function that may be called.
Result<Json> MakeTags(const CallForm& form, const Json& tools, const std::string& function) {
  Json tags = Json::array();
  std::set<std::string> names;
  std::shared_ptr<const ToolSchemas> schemas;
  if (form.takes_text_names) {
    NEREID_ASSIGN_OR_RETURN(
        schemas, ToolSchemas::Parse(tools.dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json* const inner = GivenMember(tools[i], "function");
    const std::string path = StrCat("tools[", i, "]", inner == nullptr ? "" : ".function");
    const Json& description = inner == nullptr ? tools[i] : *inner;
    const std::string name = TextOf(GivenMember(description, "name"));
    if (!function.empty() && name != function) continue;
    if (!CanBeCalled(form, name)) {
      return InvalidArgError(path, ".name: '", name.substr(0, 100),
                             "' cannot be the name of a function in a call");
    }
    // The reader of plain text knows the types of one function of each name.
    if (!names.insert(name).second && form.takes_text_names) {
      return InvalidArgError(path, ".name: '", name.substr(0, 100), "' is the name of two tools");
    }
    NEREID_ASSIGN_OR_RETURN(Json content, ContentOf(form, description, path, schemas.get()));
    const std::string written = form.quotes_name ? parsers::JsonString(name) : name;
    tags.push_back({{"type", "tag"},
                    {"begin", StrCat(form.call_begin, written, form.arguments_begin)},
                    {"content", std::move(content)},
                    {"end", form.call_end}});
  }
  if (!tags.empty()) return tags;
  if (function.empty()) return InvalidArgError("there are no tools that could be called");
  return InvalidArgError("'", function.substr(0, 100), "' is not among the tools");
}

}  // namespace

Result<ToolChoice> ParseToolChoice(std::string_view text) {
  if (text.empty() || text == "auto" || text == "none") return ToolChoice{};
  if (text == "required") return ToolChoice{.is_forced = true};
  if (text[0] == '{') {
    NEREID_ASSIGN_OR_RETURN(const Json choice, ReadJson<Json>(text, ""));
    const Json* const function = GivenMember(choice, "function");
    ToolChoice named{.is_forced = true};
    if (function != nullptr) named.function = TextOf(GivenMember(*function, "name"));
    if (!named.function.empty()) return named;
  }
  return InvalidArgError("expected auto, none, required or {\"type\": \"function\", \"function\": ",
                         "{\"name\": ...}}, got '", text.substr(0, 100), "'");
}

Result<std::string> ForcedCallsGuide(const ParserFamily& family, const Json& tools,
                                     const ToolChoice& choice, const CallGuideOptions& options) {
  if (family.call_form == nullptr) {
    return InvalidArgError("the calls of the family '", family.name, "' cannot be forced");
  }
  const CallForm form = family.call_form(options.chat_template);
  if (!tools.is_array() && !tools.is_null()) {
    return InvalidArgError("tools: expected a list, got ", tools.type_name());
  }
  NEREID_ASSIGN_OR_RETURN(Json tags, MakeTags(form, tools, choice.function));
  const bool has_one_call = form.has_one_call || options.has_one_call || !choice.function.empty();
  Json elements = Json::array();
  const std::string begin =
      StrCat(ReasoningEnd(family, form, options.prompt_end), form.section_begin);
  if (!begin.empty()) elements.push_back(ConstText(begin));
  elements.push_back({{"type", "tags_with_separator"},
                      {"tags", std::move(tags)},
                      {"separator", form.separator},
                      {"at_least_one", true},
                      {"stop_after_first", has_one_call}});
  if (!form.section_end.empty()) elements.push_back(ConstText(form.section_end));
  const Json guide = {{"format", {{"type", "sequence"}, {"elements", std::move(elements)}}},
                      {"special_tokens", true}};
  return guide.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace nereid::tokenizer
