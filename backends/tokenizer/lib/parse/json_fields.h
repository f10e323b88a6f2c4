// Typed access to JSON members. Errors name the component, the field and the found type. Used by
// the loaders of this library. [any thread]
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json_reader.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

using Json = nlohmann::json;

// Of the file with the vocabulary. The largest published ones have about 40 MB.
inline constexpr size_t kMaxTokenizerBytes = size_t{512} << 20;

// Returns the member `key`, or null if it is absent.
inline const Json& Member(const Json& object, const char* key) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto it = object.find(key);
  return it == object.end() ? null : *it;
}

// Returns the object's "type", or "" if it has none.
inline std::string TypeOf(const Json& object) {
  const Json& type = Member(object, "type");
  return type.is_string() ? type.get<std::string>() : "";
}

inline Status WrongField(std::string_view where, const char* key, const char* expected,
                         const Json& found) {
  return InvalidArgError(where, ".", key, ": expected ", expected, ", got ", found.type_name());
}

inline Result<bool> BoolField(const Json& object, const char* key, bool fallback,
                              std::string_view where) {
  const Json& value = Member(object, key);
  if (value.is_null()) return fallback;
  if (!value.is_boolean()) return WrongField(where, key, "a boolean", value);
  return value.get<bool>();
}

inline Result<std::string> StringField(const Json& object, const char* key,
                                       std::string_view where) {
  const Json& value = Member(object, key);
  if (!value.is_string()) return WrongField(where, key, "a string", value);
  return value.get<std::string>();
}

inline Result<uint64_t> CountField(const Json& object, const char* key, std::string_view where) {
  const Json& value = Member(object, key);
  if (!value.is_number_unsigned()) return WrongField(where, key, "a count", value);
  return value.get<uint64_t>();
}

inline Result<const Json*> ArrayField(const Json& object, const char* key, std::string_view where) {
  const Json& value = Member(object, key);
  if (!value.is_array()) return WrongField(where, key, "an array", value);
  return &value;
}

}  // namespace nereid::tokenizer
