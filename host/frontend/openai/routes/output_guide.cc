#include "host/frontend/openai/routes/output_guide.h"

#include <utility>

namespace nereid::openai {
namespace {

constexpr std::string_view kAnyObject = R"({"type":"object"})";

// A member of an object: its kind, its JSON as the client wrote it, and its text if it is one.
struct GuideMember {
  http::JsonKind kind = http::JsonKind::kNull;
  std::string json, text;
};

Result<GuideMember> ReadMember(http::JsonReader& reader, std::string_view text) {
  GuideMember member;
  member.kind = reader.Peek();
  const size_t start = reader.position();
  NEREID_RETURN_IF_ERROR(reader.SkipValue());
  member.json = text.substr(start, reader.position() - start);
  if (member.kind == http::JsonKind::kString) {
    const size_t end = reader.position();
    reader.Rewind(start);
    NEREID_ASSIGN_OR_RETURN(member.text, reader.ReadString());
    reader.Rewind(end);
  }
  return member;
}

Status RefuseKind(ParsedBody& body, const std::string& path, std::string_view expected,
                  http::JsonKind found) {
  return body.Refuse(path, "invalid_type", path, ": expected ", expected, ", got ",
                     http::Describe(found));
}

// A value whose meaning follows from the member or field that has it: json, regex and so on.
Result<OutputGuide> GuideOf(ParsedBody& body, const FieldValue& field, const std::string& path,
                            std::string_view name, const GuideMember& value) {
  const bool is_text = value.kind == http::JsonKind::kString;
  if (name == "json") {
    if (is_text) return OutputGuide{&field, "json_schema", value.text};
    if (value.kind == http::JsonKind::kObject || value.kind == http::JsonKind::kBool) {
      return OutputGuide{&field, "json_schema", value.json};
    }
    return RefuseKind(body, path, "a schema: an object or its text", value.kind);
  }
  if (name == "choice") {
    if (value.kind == http::JsonKind::kArray) return OutputGuide{&field, "choice", value.json};
    return RefuseKind(body, path, "an array of strings", value.kind);
  }
  if (!is_text) return RefuseKind(body, path, "a string", value.kind);
  if (name == "regex") return OutputGuide{&field, "regex", value.text};
  if (name == "grammar") return OutputGuide{&field, "ebnf_grammar", value.text};
  return OutputGuide{&field, "structural_tag", value.text};
}

Result<std::optional<OutputGuide>> ReadResponseFormat(ParsedBody& body, const FieldValue& field) {
  http::JsonReader reader = body.ReaderOf(field);
  std::string type;
  std::optional<GuideMember> schema;
  NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view name) -> Status {
    if (name == "type" && reader.Peek() == http::JsonKind::kString) {
      NEREID_ASSIGN_OR_RETURN(type, reader.ReadString());
      return Status::Ok();
    }
    if (name != "json_schema") return reader.SkipValue();
    if (reader.Peek() != http::JsonKind::kObject) {
      return RefuseKind(body, "response_format.json_schema", "an object", reader.Peek());
    }
    return reader.ReadObject([&](std::string_view member) -> Status {
      if (member != "schema") return reader.SkipValue();
      NEREID_ASSIGN_OR_RETURN(schema, ReadMember(reader, field.json));
      return Status::Ok();
    });
  }));
  if (type == "text") return std::optional<OutputGuide>();
  if (type == "json_object") {
    return std::optional(OutputGuide{&field, "json_schema", std::string(kAnyObject)});
  }
  if (type == "structural_tag") {
    return std::optional(OutputGuide{&field, "structural_tag", std::string(field.json)});
  }
  if (type != "json_schema") {
    return body.Refuse("response_format.type", "invalid_value", "response_format.type: '",
                       type.substr(0, 40),
                       "', expected text, json_object, json_schema or structural_tag");
  }
  const std::string path = "response_format.json_schema.schema";
  if (!schema) return body.Refuse(path, "missing", path, ": this field is required");
  if (schema->kind != http::JsonKind::kObject && schema->kind != http::JsonKind::kBool) {
    return RefuseKind(body, path, "an object", schema->kind);
  }
  return std::optional(OutputGuide{&field, "json_schema", std::move(schema->json)});
}

Result<std::optional<OutputGuide>> ReadStructuredOutputs(ParsedBody& body,
                                                         const FieldValue& field) {
  if (http::JsonReader peek = body.ReaderOf(field); peek.Peek() != http::JsonKind::kObject) {
    return RefuseKind(body, "structured_outputs", "an object", peek.Peek());
  }
  http::JsonReader reader = body.ReaderOf(field);
  std::optional<OutputGuide> guide;
  NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view name) -> Status {
    const std::string path = StrCat("structured_outputs.", name);
    NEREID_ASSIGN_OR_RETURN(const GuideMember value, ReadMember(reader, field.json));
    if (value.kind == http::JsonKind::kNull || value.json == "false") return Status::Ok();
    std::optional<OutputGuide> found;
    if (name == "json_object") {
      if (value.kind != http::JsonKind::kBool) {
        return RefuseKind(body, path, "a boolean", value.kind);
      }
      found = OutputGuide{&field, "json_schema", std::string(kAnyObject)};
    } else if (name == "json" || name == "regex" || name == "choice" || name == "grammar" ||
               name == "structural_tag") {
      NEREID_ASSIGN_OR_RETURN(found, GuideOf(body, field, path, name, value));
    } else if (name == "whitespace_pattern" || name == "disable_any_whitespace" ||
               name == "disable_additional_properties") {
      return body.Refuse(path, "unsupported_parameter", path, ": this field is not supported: ",
                         name == "disable_additional_properties"
                             ? "say it in the schema"
                             : "white space may stand between the tokens of JSON");
    } else {
      return body.Refuse(path, "unknown_parameter", "structured_outputs: unknown field '", name,
                         "'");
    }
    if (guide) {
      return body.Refuse("structured_outputs", "invalid_value", "structured_outputs: expected one ",
                         "of json, regex, choice, grammar, json_object and structural_tag, got '",
                         name, "' beside another one");
    }
    guide = std::move(found);
    return Status::Ok();
  }));
  return guide;
}

}  // namespace

Result<std::optional<OutputGuide>> ReadOutputGuide(ParsedBody& body) {
  std::optional<OutputGuide> guide;
  const auto add = [&](std::optional<OutputGuide> found) -> Status {
    if (!found) return Status::Ok();
    if (guide) {
      return body.Refuse(found->field->field->name, "invalid_value", found->field->field->name,
                         ": not beside '", guide->field->field->name, "'");
    }
    guide = std::move(found);
    return Status::Ok();
  };
  if (const FieldValue* const format = body.Find("response_format")) {
    NEREID_ASSIGN_OR_RETURN(auto found, ReadResponseFormat(body, *format));
    NEREID_RETURN_IF_ERROR(add(std::move(found)));
  }
  if (const FieldValue* const outputs = body.Find("structured_outputs")) {
    NEREID_ASSIGN_OR_RETURN(auto found, ReadStructuredOutputs(body, *outputs));
    NEREID_RETURN_IF_ERROR(add(std::move(found)));
  }
  for (const std::string_view name :
       {"guided_json", "guided_regex", "guided_choice", "guided_grammar"}) {
    const FieldValue* const value = body.Find(name);
    if (value == nullptr) continue;
    http::JsonReader reader = body.ReaderOf(*value);
    NEREID_ASSIGN_OR_RETURN(const GuideMember member, ReadMember(reader, value->json));
    NEREID_ASSIGN_OR_RETURN(auto found, GuideOf(body, *value, std::string(name),
                                                name.substr(sizeof("guided_") - 1), member));
    NEREID_RETURN_IF_ERROR(add(std::move(found)));
  }
  return guide;
}

}  // namespace nereid::openai
