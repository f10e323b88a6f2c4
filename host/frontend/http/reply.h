// The answers that every endpoint gives. [loop thread]
#pragma once

#include "host/frontend/http/transport/connection.h"
#include "host/frontend/http/transport/status_text.h"
#include "nereid/status.h"

namespace nereid::http {

inline void ReplyError(Connection& connection, const Status& status) {
  connection.Reply({.status = ToHttpStatus(status.code())}, ErrorBody(status.message()));
}

}  // namespace nereid::http
