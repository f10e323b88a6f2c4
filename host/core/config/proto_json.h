// Converts between protobuf messages and the JSON form of a configuration. The JSON uses proto
// field names, has every primitive field, 64-bit integers as numbers and enums as names. Unset
// messages and oneof members are absent. Included only by config/*.cc. [any thread]
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json_fwd.hpp>

#include "host/core/config/config_error.h"

namespace nereid::core::config {

using Json = nlohmann::ordered_json;

// An enum value without a name is written as a number and sets *has_unnamed_enum.
Json MessageToJson(const google::protobuf::Message& message, bool* has_unnamed_enum = nullptr);

// Adds an error for each enum value without a name.
void AddUnnamedEnums(const google::protobuf::Message& message, ConfigErrors* errors);

// Fills `message` from `json`. A field that the schema does not have or whose type differs becomes
// an error; of many such fields, the first eight do, and one error gives the number of the others.
// Accepts the same spellings as protobuf's JSON parser: camelCase names, integers as strings, enums
// as numbers, and null for unset fields.
void JsonToMessage(const Json& json, google::protobuf::Message* message, ConfigErrors* errors);

// Sorts the fields of `object` in the order of the schema, like MessageToJson. `object` must have
// only fields of `type`.
void OrderFields(const google::protobuf::Descriptor& type, Json* object);

// "unknown field 'x'" and, if there is a similar one, the name that was probably intended.
std::string UnknownFieldMessage(const google::protobuf::Descriptor& type, std::string_view name);

}  // namespace nereid::core::config
