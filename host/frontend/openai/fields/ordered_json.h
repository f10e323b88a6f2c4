// JSON whose members keep their order, for routes that turn one API's bodies into another's, and
// how they read members that a client may leave out. Pure. [any thread]
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace nereid::openai {

using OrderedJson = nlohmann::ordered_json;

// Invalid UTF-8 is replaced.
inline std::string Dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// Returns null if the object has no such member, or if the member is null.
inline const OrderedJson* Member(const OrderedJson& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// Returns `fallback` if the member is no text.
inline std::string TextOr(const OrderedJson& object, const char* name, const char* fallback = "") {
  const OrderedJson* const member = Member(object, name);
  return member != nullptr && member->is_string() ? member->get<std::string>() : fallback;
}

}  // namespace nereid::openai
