// Errors in OpenAI's form: {"error": {"message", "type", "param", "code"}}. [any thread]
#pragma once

#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::openai {

struct ApiError {
  int status = 400;  // of HTTP
  std::string message;
  std::string param = {};  // the field at fault; empty: null in JSON
  std::string code = {};   // empty: null in JSON
};

// The member `type`, which follows from the HTTP status.
std::string_view ErrorType(int status);

// Returns {"error": ...}. Bytes of the message that are not UTF-8 are replaced.
std::string ErrorJson(const ApiError& error);

// The error of a model or of the core. A prompt that exceeds the model's context has the code
// context_length_exceeded, and a full queue is 429. The C API has no codes for these two, so that
// their texts are matched.
ApiError ToApiError(const Status& status);

}  // namespace nereid::openai
