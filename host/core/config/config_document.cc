#include "host/core/config/config_document.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/concat.h"

namespace nereid::core::config {
namespace {

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void AppendString(std::string_view value, std::string* text) {
  const bool is_plain = std::all_of(value.begin(), value.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
  if (!is_plain) {
    text->append(Dump(Json(value)));
    return;
  }
  text->push_back('"');
  text->append(value);
  text->push_back('"');
}

void Append(const Json& json, std::string* text);

void AppendObject(const Json::object_t& members, std::string* text) {
  text->push_back('{');
  bool is_first = true;
  for (const auto& [name, value] : members) {
    if (!std::exchange(is_first, false)) text->push_back(',');
    AppendString(name, text);
    text->push_back(':');
    Append(value, text);
  }
  text->push_back('}');
}

void AppendArray(const Json::array_t& elements, std::string* text) {
  text->push_back('[');
  bool is_first = true;
  for (const Json& element : elements) {
    if (!std::exchange(is_first, false)) text->push_back(',');
    Append(element, text);
  }
  text->push_back(']');
}

void Append(const Json& json, std::string* text) {
  switch (json.type()) {
    case Json::value_t::object:
      return AppendObject(json.get_ref<const Json::object_t&>(), text);
    case Json::value_t::array:
      return AppendArray(json.get_ref<const Json::array_t&>(), text);
    case Json::value_t::string:
      return AppendString(json.get_ref<const std::string&>(), text);
    case Json::value_t::boolean:
      text->append(json.get<bool>() ? "true" : "false");
      return;
    case Json::value_t::number_integer:
      text->append(Concat(json.get<int64_t>()));
      return;
    case Json::value_t::number_unsigned:
      text->append(Concat(json.get<uint64_t>()));
      return;
    default:
      text->append(Dump(json));
  }
}

}  // namespace

std::string CompactText(const Json& json) {
  std::string text;
  Append(json, &text);
  return text;
}

}  // namespace nereid::core::config
