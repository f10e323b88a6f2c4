// How POST /v1/responses answers: whole and as events. [one thread]
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "host/frontend/openai/calls/answers.h"
#include "host/frontend/openai/routes/responses.h"

namespace nereid::openai {

// Gets the response's JSON and the conversation with the answer.
using StoreResponse = std::function<void(const std::string& json, std::string items)>;

// `store` is called when the answer is complete; null: it is not stored.
std::unique_ptr<AnswerFormat> NewResponseFormat(ResponseChat request, StoreResponse store);

}  // namespace nereid::openai
