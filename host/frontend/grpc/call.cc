// See call.h.
#include "host/frontend/grpc/call.h"

namespace nereid {
namespace {

GrpcCode ToGrpcCode(StatusCode code) {
  switch (code) {
    case StatusCode::kUnknown:
      return GrpcCode::kUnknown;
    case StatusCode::kInternal:
      return GrpcCode::kInternal;
    case StatusCode::kNotFound:
      return GrpcCode::kNotFound;
    case StatusCode::kInvalidArg:
      return GrpcCode::kInvalidArgument;
    case StatusCode::kUnavailable:
      return GrpcCode::kUnavailable;
    case StatusCode::kUnsupported:
      return GrpcCode::kUnimplemented;
    case StatusCode::kAlreadyExists:
      return GrpcCode::kAlreadyExists;
    case StatusCode::kCancelled:
      return GrpcCode::kCancelled;
  }
  return GrpcCode::kUnknown;
}

}  // namespace

Slice Slice::Of(std::string text) {
  auto owner = std::make_shared<const std::string>(std::move(text));
  const std::string_view bytes = *owner;
  return {bytes, std::move(owner)};
}

CallStatus ToCallStatus(const Status& status) {
  if (status.ok()) return {};
  return {ToGrpcCode(status.code()), std::string(status.message())};
}

const std::string_view* Call::FindMetadata(std::string_view name) const {
  for (const auto& [key, value] : metadata()) {
    if (key == name) return &value;
  }
  return nullptr;
}

}  // namespace nereid
