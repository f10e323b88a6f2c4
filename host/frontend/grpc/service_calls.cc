// See service_calls.h.
#include "host/frontend/grpc/service_calls.h"

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include <climits>

namespace nereid {
namespace {

// The header that carries the secret; the prefix is Triton's.
std::string RestrictionHeader(const RestrictedApis::Secret& secret) {
  return "triton-grpc-protocol-" + secret.key;
}

}  // namespace

bool IsAllowed(const RestrictedApis& restricted, ApiGroup group, const Call& call) {
  const RestrictedApis::Secret* const secret = restricted.Find(group);
  if (secret == nullptr) return true;
  const std::string_view* const found = call.FindMetadata(RestrictionHeader(*secret));
  return found != nullptr && secret->Matches(*found);
}

CallStatus RestrictedStatus(const RestrictedApis& restricted, ApiGroup group) {
  return {GrpcCode::kUnavailable, "This protocol is restricted, expecting header '" +
                                      RestrictionHeader(*restricted.Find(group)) + "'"};
}

Status ParseMessage(const Slice& bytes, google::protobuf::MessageLite& message) {
  if (bytes.bytes.size() <= INT_MAX &&
      message.ParseFromArray(bytes.bytes.data(), static_cast<int>(bytes.bytes.size()))) {
    return {};
  }
  return InternalError("Unable to parse request");
}

WireMessage Serialize(const google::protobuf::MessageLite& message) {
  return WireMessage(Slice::Of(message.SerializeAsString()));
}

void RespondNow(Call& call, const Status& status, const google::protobuf::MessageLite& response) {
  if (status.ok()) {
    call.FinishWith(Serialize(response));
  } else {
    call.Finish(ToCallStatus(status));
  }
}

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
