// See tool_schemas.h.
#include "backends/tokenizer/lib/chat/parsers/tool_schemas.h"

#include <nlohmann/json.hpp>

#include "backends/tokenizer/lib/chat/parsers/json_text.h"
#include "backends/tokenizer/lib/chat/parsers/python_literal.h"
#include "base/json_reader.h"

namespace nereid::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

const Json* Member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(name);
  return it == object.end() ? nullptr : &*it;
}

uint8_t TypeOfName(const Json& name) {
  if (!name.is_string()) return 0;
  const std::string& text = name.get_ref<const std::string&>();
  if (text == "string") return ArgumentTypes::kString;
  if (text == "integer" || text == "number") return ArgumentTypes::kNumber;
  if (text == "boolean") return ArgumentTypes::kBoolean;
  if (text == "null") return ArgumentTypes::kNull;
  if (text == "object" || text == "array") return ArgumentTypes::kStructured;
  return 0;
}

uint8_t TypeOfValue(const Json& value) {
  if (value.is_string()) return ArgumentTypes::kString;
  if (value.is_number()) return ArgumentTypes::kNumber;
  if (value.is_boolean()) return ArgumentTypes::kBoolean;
  return value.is_null() ? ArgumentTypes::kNull : ArgumentTypes::kStructured;
}

constexpr int kMaxSchemaDepth = 8;  // of alternatives in alternatives

// The types that a schema allows. 0: any, or more than this reader understands.
uint8_t TypesOfSchema(const Json& schema, int depth) {
  if (const Json* type = Member(schema, "type")) {
    if (!type->is_array()) return TypeOfName(*type);
    uint8_t bits = 0;
    for (const Json& each : *type) {
      const uint8_t bit = TypeOfName(each);
      if (bit == 0) return 0;
      bits |= bit;
    }
    return bits;
  }
  if (const Json* values = Member(schema, "enum"); values != nullptr && values->is_array()) {
    uint8_t bits = 0;
    for (const Json& value : *values) bits |= TypeOfValue(value);
    return bits;
  }
  if (const Json* value = Member(schema, "const")) return TypeOfValue(*value);
  for (const char* name : {"anyOf", "oneOf"}) {
    const Json* alternatives = Member(schema, name);
    if (alternatives == nullptr || !alternatives->is_array() || depth == kMaxSchemaDepth) continue;
    uint8_t bits = 0;
    for (const Json& alternative : *alternatives) {
      const uint8_t more = TypesOfSchema(alternative, depth + 1);
      if (more == 0) return 0;
      bits |= more;
    }
    return bits;
  }
  return 0;
}

}  // namespace

Result<std::shared_ptr<const ToolSchemas>> ToolSchemas::Parse(std::string_view json) {
  if (json.empty()) return std::shared_ptr<const ToolSchemas>();
  NEREID_ASSIGN_OR_RETURN(const Json tools, ReadJson<Json>(json, "tools"));
  if (tools.is_null()) return std::shared_ptr<const ToolSchemas>();
  if (!tools.is_array()) {
    return InvalidArgError("tools: expected a list, got ", tools.type_name());
  }
  auto schemas = std::make_shared<ToolSchemas>();
  for (const Json& tool : tools) {
    const Json* inner = Member(tool, "function");
    const Json& function = inner != nullptr ? *inner : tool;
    const Json* name = Member(function, "name");
    if (name == nullptr || !name->is_string()) continue;
    Arguments& arguments = schemas->functions_[name->get<std::string>()];
    const Json* parameters = Member(function, "parameters");
    const Json* properties = parameters == nullptr ? nullptr : Member(*parameters, "properties");
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& [key, schema] : properties->items()) {
      arguments[key] = ArgumentTypes{TypesOfSchema(schema, 0)};
    }
  }
  if (schemas->functions_.empty()) return std::shared_ptr<const ToolSchemas>();
  return std::shared_ptr<const ToolSchemas>(schemas);
}

bool ToolSchemas::Has(std::string_view function) const {
  return functions_.contains(std::string(function));
}

ArgumentTypes ToolSchemas::TypesOf(std::string_view function, std::string_view argument) const {
  const auto arguments = functions_.find(std::string(function));
  if (arguments == functions_.end()) return {};
  const auto types = arguments->second.find(std::string(argument));
  return types == arguments->second.end() ? ArgumentTypes{} : types->second;
}

std::string ArgumentJson(std::string_view text, ArgumentTypes types) {
  if (types.IsOnlyString()) return parsers::JsonString(text);
  const std::string_view value = parsers::TrimSpace(text);
  const auto type_of = [](std::string_view json) {
    switch (json.front()) {
      case '"':
        return ArgumentTypes::kString;
      case '{':
      case '[':
        return ArgumentTypes::kStructured;
      case 't':
      case 'f':
        return ArgumentTypes::kBoolean;
      case 'n':
        return ArgumentTypes::kNull;
      default:
        return ArgumentTypes::kNumber;
    }
  };
  std::string json;
  if (CheckJson(value, "", {.max_depth = value.size() + 1}).ok()) {
    json = value;
  } else if (!parsers::PythonLiteralToJson(value, json)) {
    return parsers::JsonString(text);
  }
  const ArgumentTypes::Type type = type_of(json);
  // Text in quotes is text with quotes, unless the schema says that the value is no string.
  if (type == ArgumentTypes::kString || !types.Allows(type)) return parsers::JsonString(text);
  return json;
}

}  // namespace nereid::tokenizer
