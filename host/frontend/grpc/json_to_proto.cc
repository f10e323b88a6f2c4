// See json_to_proto.h.
#include "host/frontend/grpc/json_to_proto.h"

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

namespace nereid {

Status JsonToProto(std::string_view json, google::protobuf::Message& message) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(json.data(), json.size()), &message, options);
  if (status.ok()) return {};
  return InternalError("cannot read the core's JSON as ", message.GetTypeName(), ": ",
                       std::string(status.message()));
}

}  // namespace nereid
