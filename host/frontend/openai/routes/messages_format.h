// How POST /v1/messages answers: whole, as events, and with errors. [one thread]
#pragma once

#include <memory>
#include <string>

#include "host/frontend/openai/calls/answers.h"
#include "host/frontend/openai/fields/api_error.h"

namespace nereid::openai {

std::unique_ptr<AnswerFormat> NewMessagesFormat();

// {"type": "error", ...}
std::string MessagesErrorJson(const ApiError& error);

}  // namespace nereid::openai
