#include "host/core/handle/error.h"

namespace nereid::core {

TRITONSERVER_Error* NewError(const Status& status) {
  return ToHandle(new ErrorObject{status.code(), status.message()});
}

Status TakeError(TRITONSERVER_Error* error) {
  if (error == nullptr) return Status::Ok();
  ErrorObject* object = FromHandle(error);
  Status status(object->code, std::move(object->message));
  delete object;
  return status;
}

Status CopyError(const TRITONSERVER_Error* error) {
  if (error == nullptr) return Status::Ok();
  const ErrorObject* object = FromHandle(error);
  return {object->code, object->message};
}

const char* StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kInternal:
      return "Internal";
    case StatusCode::kNotFound:
      return "Not found";
    case StatusCode::kInvalidArg:
      return "Invalid argument";
    case StatusCode::kUnavailable:
      return "Unavailable";
    case StatusCode::kUnsupported:
      return "Unsupported";
    case StatusCode::kAlreadyExists:
      return "Already exists";
    case StatusCode::kCancelled:
      return "Cancelled";
    case StatusCode::kUnknown:
      break;
  }
  return "Unknown";
}

}  // namespace nereid::core
