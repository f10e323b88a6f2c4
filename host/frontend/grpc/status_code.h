// Status -> grpc::Status: the code by its name, the message as it is. [any thread]
#pragma once

#include <grpcpp/support/status.h>

#include "nereid/status.h"

namespace nereid {

inline grpc::StatusCode ToGrpcCode(StatusCode code) {
  switch (code) {
    case StatusCode::kUnknown:
      return grpc::StatusCode::UNKNOWN;
    case StatusCode::kInternal:
      return grpc::StatusCode::INTERNAL;
    case StatusCode::kNotFound:
      return grpc::StatusCode::NOT_FOUND;
    case StatusCode::kInvalidArg:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case StatusCode::kUnavailable:
      return grpc::StatusCode::UNAVAILABLE;
    case StatusCode::kUnsupported:
      return grpc::StatusCode::UNIMPLEMENTED;
    case StatusCode::kAlreadyExists:
      return grpc::StatusCode::ALREADY_EXISTS;
    case StatusCode::kCancelled:
      return grpc::StatusCode::CANCELLED;
  }
  return grpc::StatusCode::UNKNOWN;
}

inline grpc::Status ToGrpc(const Status& status) {
  return status.ok() ? grpc::Status::OK : grpc::Status(ToGrpcCode(status.code()), status.message());
}

}  // namespace nereid
