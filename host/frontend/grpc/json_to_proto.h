// The core describes itself in JSON; gRPC answers with messages of the same field names.
// [any thread]
#pragma once

#include <string_view>

#include "nereid/status.h"

namespace google::protobuf {
class Message;
}

namespace nereid {

// INTERNAL names the message type when the text is not its JSON form; unknown fields are skipped.
Status JsonToProto(std::string_view json, google::protobuf::Message& message);

}  // namespace nereid
