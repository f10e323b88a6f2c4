// HTTP status codes: reason phrases, mapping of errors, and error bodies. [any thread]
#pragma once

#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::http {

std::string_view ReasonPhrase(int status);

// Maps INTERNAL to 500, NOT_FOUND to 404, UNAVAILABLE to 503, UNSUPPORTED to 501, all others to
// 400.
int ToHttpStatus(StatusCode code);

// Maps an error to an HTTP status.
using HttpStatusMapping = int (*)(const Status&);

inline int DefaultHttpStatus(const Status& status) {
  return ToHttpStatus(status.code());
}

// Returns {"error":"<message>"}. Bytes of the message that are not UTF-8 are replaced.
std::string ErrorBody(std::string_view message);

}  // namespace nereid::http
