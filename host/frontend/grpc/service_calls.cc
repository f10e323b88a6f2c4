// See service_calls.h.
#include "host/frontend/grpc/service_calls.h"

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include <climits>

namespace nereid {
std::string_view CallCaller::FindHeader(std::string_view name) const {
  const std::string_view* const found = call_.FindMetadata(name);
  if (found == nullptr) return {};
  return found->data() == nullptr ? std::string_view("") : *found;
}

CallStatus ToCallStatus(const Denial& denial) {
  switch (denial.reason) {
    case Denial::Reason::kRestricted:
      return {GrpcCode::kUnavailable,
              StrCat("This protocol is restricted, expecting header '", denial.message, "'")};
    case Denial::Reason::kNoKey:
      return {GrpcCode::kUnauthenticated, denial.message};
    case Denial::Reason::kNotPermitted:
      return {GrpcCode::kPermissionDenied, denial.message};
    case Denial::Reason::kDisabled:
      return {GrpcCode::kUnimplemented, denial.message};
  }
  return {GrpcCode::kPermissionDenied, denial.message};
}

bool Authenticate(const AccessControl& access, Call& call, ApiOperation operation) {
  const std::optional<Denial> denial = access.Authenticate(CallCaller(call), operation);
  if (denial) call.Finish(ToCallStatus(*denial));
  return !denial;
}

bool Authorize(const AccessControl& access, Call& call, ApiOperation operation,
               std::string_view model) {
  const std::optional<Denial> denial = access.Authorize(CallCaller(call), operation, model);
  if (denial) call.Finish(ToCallStatus(*denial));
  return !denial;
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
