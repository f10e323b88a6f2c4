#include "host/frontend/openai/fields/parsed_body.h"

#include <utility>

namespace nereid::openai {
namespace {

using http::JsonKind;

// Removes white space. It does so within strings, too, which does no harm in the values that change
// nothing.
std::string WithoutBlanks(std::string_view json) {
  std::string text;
  for (const char c : json) {
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') text += c;
  }
  return text;
}

JsonKind JsonKindOf(FieldKind kind) {
  switch (kind) {
    case FieldKind::kBool:
      return JsonKind::kBool;
    case FieldKind::kInteger:
    case FieldKind::kNumber:
      return JsonKind::kNumber;
    case FieldKind::kText:
      return JsonKind::kString;
    case FieldKind::kTexts:
    case FieldKind::kIntegers:
    case FieldKind::kArray:
      return JsonKind::kArray;
    case FieldKind::kObject:
      return JsonKind::kObject;
    default:
      return JsonKind::kInvalid;
  }
}

// "5" rather than "5.000000".
std::string NumberText(double number) {
  return StrCat(number);
}

}  // namespace

bool FieldValue::IsNeutral() const {
  if (field->neutral.empty() || json.size() > 64) return false;
  switch (field->kind) {
    case FieldKind::kBool:
      return boolean == (field->neutral == "true");
    case FieldKind::kInteger:
    case FieldKind::kNumber:
      return StrCat(number) == field->neutral;
    default:
      return WithoutBlanks(json) == field->neutral;
  }
}

Status ParsedBody::Read(RouteSet route) {
  NEREID_RETURN_IF_ERROR(reader_.ReadObject([&](std::string_view name) -> Status {
    const Field* const field = FindField(route, name);
    if (reader_.Peek() == JsonKind::kNull) return reader_.SkipValue();
    if (field == nullptr) return RefuseUnknown(route, name);
    return ReadField(*field);
  }));
  return reader_.ExpectEnd();
}

Status ParsedBody::RefuseUnknown(RouteSet route, std::string_view name) {
  const std::string_view close = ClosestField(route, name);
  if (close.empty()) return Refuse(name, "unknown_parameter", "unknown field '", name, "'");
  return Refuse(name, "unknown_parameter", "unknown field '", name, "'; did you mean '", close,
                "'?");
}

Status ParsedBody::ReadField(const Field& field) {
  FieldValue value;
  value.field = &field;
  const size_t start = reader_.position();
  if (field.handling == Handling::kRefused) {
    NEREID_RETURN_IF_ERROR(reader_.SkipValue());
  } else {
    NEREID_RETURN_IF_ERROR(ReadValue(value));
  }
  value.json = json_.substr(start, reader_.position() - start);
  if (field.handling == Handling::kRefused) {
    if (WithoutBlanks(value.json.substr(0, 64)) == field.neutral) return Status::Ok();
    return Refuse(field.name, "unsupported_parameter", "field '", field.name,
                  "' is not supported: ", field.note);
  }
  values_.push_back(std::move(value));
  return Status::Ok();
}

Status ParsedBody::CheckKind(std::string_view path, JsonKind expected,
                             std::string_view description) {
  const JsonKind found = reader_.Peek();
  if (found == expected) return Status::Ok();
  if (found == JsonKind::kInvalid || found == JsonKind::kEnd) {
    return reader_.Unexpected(description);
  }
  return Refuse(path, "invalid_type", path, ": expected ", description, ", got ",
                http::Describe(found));
}

Status ParsedBody::CheckRange(const FieldValue& value, double number, std::string_view path) {
  const Field& field = *value.field;
  if (field.min == field.max || (number >= field.min && number <= field.max)) return Status::Ok();
  return Refuse(path, "invalid_value", path, ": expected ", NumberText(field.min), " to ",
                NumberText(field.max), ", got ", NumberText(number));
}

Status ParsedBody::ReadValue(FieldValue& value) {
  const Field& field = *value.field;
  const JsonKind expected = JsonKindOf(field.kind);
  if (expected != JsonKind::kInvalid) {
    NEREID_RETURN_IF_ERROR(CheckKind(field.name, expected, Describe(field.kind)));
  }
  switch (field.kind) {
    case FieldKind::kBool: {
      NEREID_ASSIGN_OR_RETURN(value.boolean, reader_.ReadBool());
      return Status::Ok();
    }
    case FieldKind::kInteger: {
      const Result<int64_t> integer = reader_.ReadInt64();
      if (!integer.ok()) {
        return Refuse(field.name, "invalid_type", field.name, ": ", integer.status().message());
      }
      value.integer = *integer;
      value.number = static_cast<double>(*integer);
      return CheckRange(value, value.number, field.name);
    }
    case FieldKind::kNumber: {
      NEREID_ASSIGN_OR_RETURN(value.number, reader_.ReadDouble());
      return CheckRange(value, value.number, field.name);
    }
    case FieldKind::kText: {
      NEREID_ASSIGN_OR_RETURN(value.text, reader_.ReadString());
      return Status::Ok();
    }
    case FieldKind::kTextOrTexts:
    case FieldKind::kTexts:
      return ReadTexts(value);
    case FieldKind::kIntegers:
      return ReadIntegers(value);
    default:
      return reader_.SkipValue();
  }
}

Status ParsedBody::ReadTexts(FieldValue& value) {
  const Field& field = *value.field;
  if (field.kind == FieldKind::kTextOrTexts && reader_.Peek() == JsonKind::kString) {
    NEREID_ASSIGN_OR_RETURN(const std::string_view text, reader_.ReadString());
    value.texts.push_back(text);
    return Status::Ok();
  }
  NEREID_RETURN_IF_ERROR(CheckKind(field.name, JsonKind::kArray, Describe(field.kind)));
  return reader_.ReadArray([&]() -> Status {
    if (value.texts.size() >= field.max) {
      return Refuse(field.name, "invalid_value", field.name, ": expected at most ",
                    NumberText(field.max), " strings");
    }
    const std::string path = StrCat(field.name, "[", value.texts.size(), "]");
    NEREID_RETURN_IF_ERROR(CheckKind(path, JsonKind::kString, "a string"));
    NEREID_ASSIGN_OR_RETURN(const std::string_view text, reader_.ReadString());
    value.texts.push_back(text);
    return Status::Ok();
  });
}

Status ParsedBody::ReadIntegers(FieldValue& value) {
  const Field& field = *value.field;
  return reader_.ReadArray([&]() -> Status {
    const std::string path = StrCat(field.name, "[", value.integers.size(), "]");
    NEREID_RETURN_IF_ERROR(CheckKind(path, JsonKind::kNumber, "an integer"));
    const Result<int64_t> integer = reader_.ReadInt64();
    if (!integer.ok()) {
      return Refuse(path, "invalid_type", path, ": ", integer.status().message());
    }
    NEREID_RETURN_IF_ERROR(CheckRange(value, static_cast<double>(*integer), path));
    value.integers.push_back(*integer);
    return Status::Ok();
  });
}

const FieldValue* ParsedBody::Find(std::string_view name) const {
  for (const FieldValue& value : values_) {
    if (value.field->name == name) return &value;
  }
  return nullptr;
}

bool ParsedBody::BoolOr(std::string_view name, bool fallback) const {
  const FieldValue* const value = Find(name);
  return value == nullptr ? fallback : value->boolean;
}

int64_t ParsedBody::IntegerOr(std::string_view name, int64_t fallback) const {
  const FieldValue* const value = Find(name);
  return value == nullptr ? fallback : value->integer;
}

ApiError ParsedBody::ErrorOf(const Status& status) const {
  ApiError error = ToApiError(status);
  if (!param_.empty()) error.param = param_;
  if (!code_.empty()) error.code = code_;
  return error;
}

}  // namespace nereid::openai
