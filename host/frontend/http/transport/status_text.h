// Reason phrases, and how the C API's error codes show on HTTP. [any thread]
#pragma once

#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::http {

std::string_view ReasonPhrase(int status);

// INTERNAL 500, NOT_FOUND 404, UNAVAILABLE 503, UNSUPPORTED 501, everything else 400.
int ToHttpStatus(StatusCode code);

// {"error":"<message>"}; bytes of the message that are not UTF-8 are replaced.
std::string ErrorBody(std::string_view message);

}  // namespace nereid::http
