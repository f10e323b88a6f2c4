// The JSON form of a configuration: proto names, every primitive field present, 64-bit integers as
// numbers, enums as names. Unset messages and oneof members are absent. Included by config/*.cc
// alone. [any thread]
#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json_fwd.hpp>

#include "host/core/config/fault.h"

namespace nereid::config {

using Json = nlohmann::ordered_json;

// Numbers that their enum has no name for stay numbers, and set *has_unnamed_enum.
Json MessageToJson(const google::protobuf::Message& message, bool* has_unnamed_enum = nullptr);

// Names each of those numbers.
void AddUnnamedEnums(const google::protobuf::Message& message, Faults* faults);

// Fills `message` from `json`; every field that the schema does not know or that has another type
// becomes a fault. Accepts what protobuf's JSON accepts: camelCase names, integers as strings,
// enums as numbers, null for unset.
void JsonToMessage(const Json& json, google::protobuf::Message* message, Faults* faults);

// Puts the fields of `object`, which has no others than those of `type`, in the order of the
// schema, as MessageToJson has them.
void OrderFields(const google::protobuf::Descriptor& type, Json* object);

// "unknown field 'x'", with the name that was probably meant.
std::string UnknownFieldMessage(const google::protobuf::Descriptor& type, std::string_view name);

}  // namespace nereid::config
