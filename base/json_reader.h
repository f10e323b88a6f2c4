// Reads JSON texts that come from files and clients. All JSON that becomes a tree goes through this
// reader, because deep trees overflow the stack: copying, writing and comparing a tree recurse. A
// text outside of the limits is refused before any of it becomes a tree. [any thread]
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nereid/status.h"

namespace nereid {

struct JsonLimits {
  size_t max_bytes = size_t{64} << 20;
  // Levels of nested arrays and objects; {"a": [1]} has two.
  size_t max_depth = 64;
  // Elements and members of all arrays and objects together. Each takes about a hundred bytes of
  // memory, up to fifty times its size in the text.
  size_t max_values = size_t{4} << 20;
};

// Compares the text with the limits in one pass, without recursion or allocation. It need not be
// valid JSON. INVALID_ARG names the line, the outermost field, the value and the limit.
Status CheckJsonLimits(std::string_view text, const JsonLimits& limits = {});

// Whether `text` is JSON within the limits, without reading it into a tree. Errors as ReadJson.
Status CheckJson(std::string_view text, std::string_view name, const JsonLimits& limits = {});

// The 1-based line of a byte of `text`.
size_t LineOfByte(std::string_view text, size_t byte);

namespace internal {

// Builds a tree from the events of nlohmann's parser. The library's own builder searches the
// members of an ordered object for each new one, so it needs quadratic time.
template <typename Json>
class JsonTreeBuilder {
 public:
  bool null() { return Put(nullptr) != nullptr; }
  bool boolean(bool value) { return Put(value) != nullptr; }
  bool number_integer(typename Json::number_integer_t value) { return Put(value) != nullptr; }
  bool number_unsigned(typename Json::number_unsigned_t value) { return Put(value) != nullptr; }
  bool number_float(typename Json::number_float_t value, const std::string&) {
    return Put(value) != nullptr;
  }
  bool string(std::string& value) { return Put(std::move(value)) != nullptr; }
  bool binary(typename Json::binary_t&) { return false; }  // JSON has none
  bool start_object(size_t) { return Open(Json::object()); }
  bool start_array(size_t) { return Open(Json::array()); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(std::string& name) {
    key_ = std::move(name);
    return true;
  }
  template <typename Exception>
  bool parse_error(size_t byte, const std::string&, const Exception&) {
    error_byte_ = byte;
    return false;
  }

  Json& root() { return root_; }
  size_t error_byte() const { return error_byte_; }

 private:
  // An array or object that is not closed. It does not move while it is open, because only the
  // innermost one grows.
  struct Container {
    Json* json;
    std::unordered_map<std::string, size_t> members;  // name to index, of a large ordered object
  };

  template <typename Value>
  Json* Put(Value&& value) {
    if (open_.empty()) {
      root_ = std::forward<Value>(value);
      return &root_;
    }
    Container& container = open_.back();
    if (container.json->is_array()) {
      auto& elements = container.json->template get_ref<typename Json::array_t&>();
      return &elements.emplace_back(std::forward<Value>(value));
    }
    Json& member = Member(container);
    member = std::forward<Value>(value);
    return &member;
  }

  // The member `key_`, new or not: the last value of a repeated name counts.
  Json& Member(Container& container) {
    auto& object = container.json->template get_ref<typename Json::object_t&>();
    if constexpr (requires { object.emplace_back(key_, nullptr); }) {
      constexpr size_t kMaxSearched = 16;
      if (object.size() < kMaxSearched) return object[key_];
      if (container.members.empty()) {
        for (const auto& member : object) {
          container.members.emplace(member.first, container.members.size());
        }
      }
      const auto [it, is_new] = container.members.try_emplace(key_, object.size());
      if (is_new) object.emplace_back(key_, nullptr);
      return (object.begin() + static_cast<ptrdiff_t>(it->second))->second;
    } else {
      return object[key_];
    }
  }

  bool Open(Json&& container) {
    open_.push_back({Put(std::move(container)), {}});
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Container> open_;
  std::string key_;
  size_t error_byte_ = 0;
};

Status JsonSyntaxError(std::string_view text, size_t byte, std::string_view name);
Status WithName(Status status, std::string_view name);

}  // namespace internal

// Reads a whole text. INVALID_ARG names `name` (such as the file; may be empty), the line, and what
// is wrong; see CheckJsonLimits. The last value of a repeated name counts.
template <typename Json>
Result<Json> ReadJson(std::string_view text, std::string_view name, const JsonLimits& limits = {}) {
  NEREID_RETURN_IF_ERROR(internal::WithName(CheckJsonLimits(text, limits), name));
  internal::JsonTreeBuilder<Json> builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return internal::JsonSyntaxError(text, builder.error_byte(), name);
  }
  return std::move(builder.root());
}

// ReadJson of a text that must be an object.
template <typename Json>
Result<Json> ReadJsonObject(std::string_view text, std::string_view name,
                            const JsonLimits& limits = {}) {
  NEREID_ASSIGN_OR_RETURN(Json json, ReadJson<Json>(text, name, limits));
  if (json.is_object()) return json;
  return internal::WithName(InvalidArgError("not a JSON object, but of type ", json.type_name()),
                            name);
}

// ReadJsonObject that shows each value to `callback` while it reads, as nlohmann's parse does. A
// value for which `callback` returns false does not become part of the tree.
template <typename Json>
Result<Json> ReadJsonObject(std::string_view text, std::string_view name, const JsonLimits& limits,
                            const typename Json::parser_callback_t& callback) {
  NEREID_RETURN_IF_ERROR(internal::WithName(CheckJsonLimits(text, limits), name));
  Json json;
  try {
    json = Json::parse(text.begin(), text.end(), callback);
  } catch (const typename Json::parse_error& error) {
    return internal::JsonSyntaxError(text, error.byte, name);
  } catch (const typename Json::exception&) {  // a number that is too large
    return internal::JsonSyntaxError(text, 0, name);
  }
  if (json.is_object()) return json;
  return internal::WithName(InvalidArgError("not a JSON object, but of type ", json.type_name()),
                            name);
}

// The value as JSON for an error text, cut off after about sixty bytes. `json` may have any size.
// Bytes that are not UTF-8 become U+FFFD.
template <typename Json>
std::string ShowJson(const Json& json);

// `text` for an error text, cut off after two hundred bytes.
std::string ShowText(std::string_view text);

namespace internal {

constexpr size_t kMaxShownBytes = 60;
constexpr size_t kMaxShownDepth = 8;

// At most `max_bytes` of `text`, with "..." at the end of a longer one.
std::string CutOff(std::string_view text, size_t max_bytes);

template <typename Json>
std::string ShowString(const std::string& value) {
  // More than what is shown, but not all of a string of megabytes.
  const Json beginning = value.substr(0, 2 * kMaxShownBytes);
  return beginning.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <typename Json>
void AppendShown(const Json& json, size_t depth, std::string* text) {
  if (text->size() > kMaxShownBytes) return;
  if (json.is_structured() && depth == kMaxShownDepth) {
    text->append("...");
  } else if (json.is_array()) {
    for (size_t i = 0; i < json.size() && text->size() <= kMaxShownBytes; ++i) {
      text->push_back(i == 0 ? '[' : ',');
      AppendShown(json[i], depth + 1, text);
    }
    text->append(json.empty() ? "[]" : "]");
  } else if (json.is_object()) {
    char separator = '{';
    for (auto it = json.begin(); it != json.end() && text->size() <= kMaxShownBytes; ++it) {
      text->push_back(std::exchange(separator, ','));
      text->append(ShowString<Json>(it.key())).push_back(':');
      AppendShown(it.value(), depth + 1, text);
    }
    text->append(json.empty() ? "{}" : "}");
  } else if (json.is_string()) {
    text->append(ShowString<Json>(json.template get_ref<const std::string&>()));
  } else {
    text->append(json.dump());
  }
}

}  // namespace internal

template <typename Json>
std::string ShowJson(const Json& json) {
  std::string text;
  internal::AppendShown(json, 0, &text);
  return internal::CutOff(text, internal::kMaxShownBytes);
}

}  // namespace nereid
