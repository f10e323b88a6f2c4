// The answers that every endpoint gives. [loop thread]
#pragma once

#include "host/frontend/http/transport/connection.h"
#include "host/frontend/http/transport/status_text.h"
#include "nereid/status.h"

namespace nereid::http {

// The HTTP status of an error.
using StatusRule = int (*)(const Status&);

inline int UsualStatus(const Status& status) {
  return ToHttpStatus(status.code());
}

inline void ReplyError(Connection& connection, const Status& status,
                       StatusRule rule = &UsualStatus) {
  connection.Reply({.status = rule(status)}, ErrorBody(status.message()));
}

}  // namespace nereid::http
