// Typed reading of JSON objects with errors that name the component, the field and what was found.
// For the loaders of this library alone. [any thread]
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::tokenizer {

using Json = nlohmann::json;

// Whether arrays and objects of `text` lie in each other deeper than any file here has a reason to:
// a tree of such a file would take a hundred times its bytes.
inline bool IsTooDeep(std::string_view text) {
  constexpr int kMaxDepth = 64;
  int depth = 0;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') in_string = !in_string;
    if (in_string) {
      at += c == '\\';
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

// The member `key`, or null when absent.
inline const Json& Member(const Json& object, const char* key) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto it = object.find(key);
  return it == object.end() ? null : *it;
}

// The object's "type", or "" when it is no object with one.
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
