// The C edge of errors: Status <-> TRITONSERVER_Error*. Used wherever C++ calls the C API or is
// called by it. [any thread]
#pragma once

#include <memory>
#include <string>

#include "nereid/status.h"
#include "triton/core/tritonserver.h"

namespace nereid {

// Takes ownership of `error`; nullptr is success.
inline Status ToStatus(TRITONSERVER_Error* error) {
  if (error == nullptr) return Status::Ok();
  Status status(static_cast<StatusCode>(TRITONSERVER_ErrorCode(error)),
                TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  return status;
}

// The caller, usually the host, owns what is returned; Ok becomes nullptr.
[[nodiscard]] inline TRITONSERVER_Error* ToError(const Status& status) {
  if (status.ok()) return nullptr;
  return TRITONSERVER_ErrorNew(static_cast<TRITONSERVER_Error_Code>(status.code()),
                               status.message().c_str());
}

}  // namespace nereid
