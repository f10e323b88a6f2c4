#include "host/core/config/proto_json.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/json_reader.h"

namespace nereid::core::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Formats a number like protobuf, and therefore like Triton: 0.1f is 0.1, whole numbers have no
// fraction, and a number that digits10 digits do not represent exactly gets max_digits10 digits.
template <typename Float>
Json FloatToJson(Float value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  if (std::trunc(value) == value && std::fabs(value) < Float(1LL << 53)) {
    return static_cast<int64_t>(value);
  }
  char text[64];
  double written = 0;
  for (const int digits :
       {std::numeric_limits<Float>::digits10, std::numeric_limits<Float>::max_digits10}) {
    const auto end =
        std::to_chars(text, text + sizeof(text), value, std::chars_format::general, digits).ptr;
    std::from_chars(text, end, written);
    if (static_cast<Float>(written) == value) break;
  }
  return written;
}

// Triton prints 64-bit integers as numbers, except in these fields, which are strings as in
// protobuf's JSON.
bool IsPrintedAsString(const FieldDescriptor* field) {
  const std::string& name = field->full_name();
  return name == "inference.ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim" ||
         name == "inference.ModelSequenceBatching.InitialState.dims" ||
         name == "inference.ModelInstanceGroup.SecondaryDevice.device_id";
}

Json ScalarToJson(const Message& message, const FieldDescriptor* field, int index,
                  bool* has_unnamed_enum) {
  const Reflection& r = *message.GetReflection();
  const bool repeated = index >= 0;
#define NEREID_GET(Type) \
  (repeated ? r.GetRepeated##Type(message, field, index) : r.Get##Type(message, field))
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return NEREID_GET(Int32);
    case FieldDescriptor::CPPTYPE_INT64: {
      const int64_t value = NEREID_GET(Int64);
      return IsPrintedAsString(field) ? Json(std::to_string(value)) : Json(value);
    }
    case FieldDescriptor::CPPTYPE_UINT32:
      return NEREID_GET(UInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return NEREID_GET(UInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return FloatToJson(NEREID_GET(Double));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return FloatToJson(NEREID_GET(Float));
    case FieldDescriptor::CPPTYPE_BOOL:
      return NEREID_GET(Bool);
    case FieldDescriptor::CPPTYPE_STRING:
      return NEREID_GET(String);
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int number = NEREID_GET(EnumValue);
      const auto* value = field->enum_type()->FindValueByNumber(number);
      if (value != nullptr) return value->name();
      if (has_unnamed_enum != nullptr) *has_unnamed_enum = true;
      return number;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageToJson(NEREID_GET(Message), has_unnamed_enum);
  }
#undef NEREID_GET
  return nullptr;
}

Json MapToJson(const Message& message, const FieldDescriptor* field, bool* has_unnamed_enum) {
  const Reflection& r = *message.GetReflection();
  const FieldDescriptor* key = field->message_type()->FindFieldByNumber(1);
  const FieldDescriptor* value = field->message_type()->FindFieldByNumber(2);
  // Sorted, so that equal configurations have the same text.
  std::map<std::string, Json> sorted;
  for (int i = 0; i < r.FieldSize(message, field); ++i) {
    const Message& entry = r.GetRepeatedMessage(message, field, i);
    const Json name = ScalarToJson(entry, key, -1, has_unnamed_enum);
    sorted[name.is_string() ? name.get<std::string>() : name.dump()] =
        ScalarToJson(entry, value, -1, has_unnamed_enum);
  }
  Json object = Json::object();
  auto& members = object.get_ref<Json::object_t&>();
  members.reserve(sorted.size());
  // The names are unique, so emplace_back does not need to search for an existing one.
  for (auto& [name, item] : sorted) members.emplace_back(name, std::move(item));
  return object;
}

Json RepeatedToJson(const Message& message, const FieldDescriptor* field, bool* has_unnamed_enum) {
  Json array = Json::array();
  const int size = message.GetReflection()->FieldSize(message, field);
  for (int i = 0; i < size; ++i) {
    array.push_back(ScalarToJson(message, field, i, has_unnamed_enum));
  }
  return array;
}

std::string Join(const std::string& path, std::string_view name) {
  std::string joined = path;
  if (!joined.empty()) joined += '.';
  return joined.append(name);
}

// Reads an integer from a number without a fraction or from a string.
template <typename Int>
bool TakeInteger(const Json& json, Int* out) {
  if (json.is_string()) {
    std::string_view text = json.get_ref<const std::string&>();
    if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
    return error == std::errc() && end == text.data() + text.size() && !text.empty();
  }
  if (json.is_number_unsigned()) {
    const auto value = json.get<uint64_t>();
    *out = static_cast<Int>(value);
    return value <= static_cast<uint64_t>(std::numeric_limits<Int>::max());
  }
  if (json.is_number_integer()) {
    const auto value = json.get<int64_t>();
    *out = static_cast<Int>(value);
    return std::in_range<Int>(value);
  }
  if (json.is_number_float()) {
    const auto value = json.get<double>();
    if (std::trunc(value) != value || std::fabs(value) >= double(1LL << 53)) return false;
    return TakeInteger(Json(static_cast<int64_t>(value)), out);
  }
  return false;
}

bool TakeDouble(const Json& json, double* out) {
  if (json.is_number()) {
    *out = json.get<double>();
    return true;
  }
  if (!json.is_string()) return false;
  const auto& text = json.get_ref<const std::string&>();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// Fills a message from JSON by traversing both together. Reports the first errors and counts the
// others, because a client may send any number of wrong fields.
class Reader {
 public:
  explicit Reader(ConfigErrors* errors) : errors_(errors) {}

  void Document(const Json& json, Message* message) {
    Object(json, message, "");
    if (num_errors_ <= kMaxErrors) return;
    errors_->push_back({"", 0, 0, "", StrCat("and ", num_errors_ - kMaxErrors, " more errors")});
  }

 private:
  static constexpr size_t kMaxErrors = 8;

  void Object(const Json& json, Message* message, const std::string& path) {
    if (!json.is_object()) return Mismatch(path, "an object", json);
    for (const auto& [name, value] : json.items()) {
      const FieldDescriptor* field = Find(*message->GetDescriptor(), name);
      if (field == nullptr && num_errors_ >= kMaxErrors) {
        ++num_errors_;
      } else if (field == nullptr) {
        Add(Join(path, ShowText(name)), UnknownFieldMessage(*message->GetDescriptor(), name));
      } else if (!value.is_null()) {
        Field(value, message, field, Join(path, field->name()));
      }
    }
  }

  static const FieldDescriptor* Find(const Descriptor& type, const std::string& name) {
    const FieldDescriptor* field = type.FindFieldByName(name);
    return field != nullptr ? field : type.FindFieldByCamelcaseName(name);
  }

  // As in protobuf: accepts the name, the number as text, and the name in lower case or with
  // dashes.
  static const EnumValueDescriptor* FindEnum(const EnumDescriptor& type, std::string name) {
    int32_t number = 0;
    if (TakeInteger(Json(name), &number)) return type.FindValueByNumber(number);
    for (char& c : name) {
      if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
      if (c == '-') c = '_';
    }
    return type.FindValueByName(name);
  }

  // As in protobuf: accepts these words in upper or lower case.
  static std::optional<bool> FindBool(const Json& json) {
    if (json.is_boolean()) return json.get<bool>();
    if (!json.is_string()) return std::nullopt;
    std::string word = json.get<std::string>();
    for (char& c : word) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    for (const char* yes : {"true", "t", "yes", "y", "1"}) {
      if (word == yes) return true;
    }
    for (const char* no : {"false", "f", "no", "n", "0"}) {
      if (word == no) return false;
    }
    return std::nullopt;
  }

  void Field(const Json& json, Message* message, const FieldDescriptor* field,
             const std::string& path) {
    if (const auto* oneof = field->real_containing_oneof()) {
      if (message->GetReflection()->HasOneof(*message, oneof)) {
        return Add(path, StrCat("only one of the fields of '", oneof->name(), "' may be set"));
      }
    }
    if (field->is_map()) {
      Map(json, message, field, path);
    } else if (field->is_repeated()) {
      // As in protobuf: a value that is not an array is read as the only element.
      if (!json.is_array()) return Scalar(json, message, field, true, path + "[0]");
      for (size_t i = 0; i < json.size(); ++i) {
        Scalar(json[i], message, field, true, path + '[' + std::to_string(i) + ']');
      }
    } else {
      Scalar(json, message, field, false, path);
    }
  }

  void Map(const Json& json, Message* message, const FieldDescriptor* field,
           const std::string& path) {
    if (!json.is_object()) return Mismatch(path, "an object", json);
    const FieldDescriptor* key = field->message_type()->FindFieldByNumber(1);
    const FieldDescriptor* value = field->message_type()->FindFieldByNumber(2);
    for (const auto& [name, item] : json.items()) {
      Message* entry = message->GetReflection()->AddMessage(message, field);
      Scalar(Json(name), entry, key, false, path);
      if (!item.is_null()) Scalar(item, entry, value, false, Join(path, ShowText(name)));
    }
  }

  void Scalar(const Json& json, Message* m, const FieldDescriptor* field, bool repeated,
              const std::string& path) {
    const Reflection& r = *m->GetReflection();
#define NEREID_SET(Type, value) \
  (repeated ? r.Add##Type(m, field, value) : r.Set##Type(m, field, value))
#define NEREID_INTEGER(CPPTYPE, Type, Int, what)                       \
  case FieldDescriptor::CPPTYPE: {                                     \
    Int value = 0;                                                     \
    if (!TakeInteger(json, &value)) return Mismatch(path, what, json); \
    return NEREID_SET(Type, value);                                    \
  }
    switch (field->cpp_type()) {
      NEREID_INTEGER(CPPTYPE_INT32, Int32, int32_t, "a 32-bit integer")
      NEREID_INTEGER(CPPTYPE_INT64, Int64, int64_t, "a 64-bit integer")
      NEREID_INTEGER(CPPTYPE_UINT32, UInt32, uint32_t, "an unsigned 32-bit integer")
      NEREID_INTEGER(CPPTYPE_UINT64, UInt64, uint64_t, "an unsigned 64-bit integer")
      case FieldDescriptor::CPPTYPE_DOUBLE:
      case FieldDescriptor::CPPTYPE_FLOAT: {
        double value = 0;
        if (!TakeDouble(json, &value)) return Mismatch(path, "a number", json);
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
          return NEREID_SET(Float, static_cast<float>(value));
        }
        return NEREID_SET(Double, value);
      }
      case FieldDescriptor::CPPTYPE_BOOL:
        if (const std::optional<bool> value = FindBool(json)) return NEREID_SET(Bool, *value);
        return Mismatch(path, "true or false", json);
      case FieldDescriptor::CPPTYPE_STRING:
        if (!json.is_string()) return Mismatch(path, "a string", json);
        return NEREID_SET(String, json.get<std::string>());
      case FieldDescriptor::CPPTYPE_ENUM: {
        int32_t number = 0;
        const auto* value =
            json.is_string()             ? FindEnum(*field->enum_type(), json.get<std::string>())
            : TakeInteger(json, &number) ? field->enum_type()->FindValueByNumber(number)
                                         : nullptr;
        if (value == nullptr) {
          return Mismatch(path, StrCat("a value of ", field->enum_type()->name()), json);
        }
        return NEREID_SET(EnumValue, value->number());
      }
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Object(json, repeated ? r.AddMessage(m, field) : r.MutableMessage(m, field), path);
    }
#undef NEREID_INTEGER
#undef NEREID_SET
  }

  void Mismatch(const std::string& path, std::string_view expected, const Json& got) {
    Add(path, StrCat("expected ", expected, ", got ", ShowJson(got)));
  }
  void Add(const std::string& path, std::string message) {
    if (++num_errors_ <= kMaxErrors) errors_->push_back({"", 0, 0, path, std::move(message)});
  }

  ConfigErrors* const errors_;
  size_t num_errors_ = 0;
};

void AddUnnamedEnumsIn(const Message& message, const std::string& path, ConfigErrors* errors) {
  const Reflection& r = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  r.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int size = field->is_repeated() ? r.FieldSize(message, field) : 1;
    for (int i = 0; i < size; ++i) {
      const bool repeated = field->is_repeated();
      const std::string own = Join(path, field->name()) + (repeated ? StrCat("[", i, "]") : "");
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        AddUnnamedEnumsIn(
            repeated ? r.GetRepeatedMessage(message, field, i) : r.GetMessage(message, field), own,
            errors);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
        const int number =
            repeated ? r.GetRepeatedEnumValue(message, field, i) : r.GetEnumValue(message, field);
        if (field->enum_type()->FindValueByNumber(number) != nullptr) continue;
        errors->push_back(
            {"", 0, 0, own,
             StrCat("expected a value of ", field->enum_type()->name(), ", got ", number)});
      }
    }
  }
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

}  // namespace

Json MessageToJson(const Message& message, bool* has_unnamed_enum) {
  const Descriptor* type = message.GetDescriptor();
  const Reflection& r = *message.GetReflection();
  Json object = Json::object();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (field->is_map()) {
      object[field->name()] = MapToJson(message, field, has_unnamed_enum);
    } else if (field->is_repeated()) {
      object[field->name()] = RepeatedToJson(message, field, has_unnamed_enum);
    } else if (!field->has_presence() || r.HasField(message, field)) {
      object[field->name()] = ScalarToJson(message, field, -1, has_unnamed_enum);
    }
  }
  return object;
}

void AddUnnamedEnums(const Message& message, ConfigErrors* errors) {
  AddUnnamedEnumsIn(message, "", errors);
}

void JsonToMessage(const Json& json, Message* message, ConfigErrors* errors) {
  Reader(errors).Document(json, message);
}

void OrderFields(const Descriptor& type, Json* object) {
  auto& members = object->get_ref<Json::object_t&>();
  std::vector<std::pair<int, Json*>> fields;  // index of the field in the schema, and its value
  fields.reserve(members.size());
  bool is_ordered = true;
  for (auto& [name, value] : members) {
    const FieldDescriptor* field = type.FindFieldByName(name);
    const Descriptor* nested = field->is_map() ? nullptr : field->message_type();
    if (nested != nullptr && value.is_object()) OrderFields(*nested, &value);
    if (nested != nullptr && value.is_array()) {
      for (Json& item : value) OrderFields(*nested, &item);
    }
    is_ordered = is_ordered && (fields.empty() || fields.back().first < field->index());
    fields.emplace_back(field->index(), &value);
  }
  if (is_ordered) return;
  std::sort(fields.begin(), fields.end());
  Json::object_t ordered;
  ordered.reserve(fields.size());
  for (const auto& [index, value] : fields) {
    // The names are unique, so emplace_back does not need to search for an existing one.
    ordered.emplace_back(type.field(index)->name(), std::move(*value));
  }
  *object = std::move(ordered);
}

std::string UnknownFieldMessage(const Descriptor& type, std::string_view name) {
  if (name.size() > 64) name = name.substr(0, 64);
  const FieldDescriptor* nearest = nullptr;
  size_t best = std::max<size_t>(name.size() / 3, 1) + 1;
  for (int i = 0; i < type.field_count(); ++i) {
    const size_t distance = EditDistance(name, type.field(i)->name());
    if (distance < best) {
      best = distance;
      nearest = type.field(i);
    }
  }
  std::string text = StrCat("unknown field '", name, "' in ", type.name());
  if (nearest != nullptr) text += StrCat("; did you mean '", nearest->name(), "'?");
  return text;
}

}  // namespace nereid::core::config
