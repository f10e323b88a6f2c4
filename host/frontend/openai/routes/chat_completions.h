// POST /v1/chat/completions: the next message of a conversation. [one thread]
#pragma once

#include <memory>
#include <string>

#include "host/frontend/openai/calls/answers.h"
#include "host/frontend/openai/calls/generation_request.h"
#include "host/frontend/openai/fields/parsed_body.h"
#include "host/frontend/openai/tensors/llm_signature.h"
#include "nereid/status.h"

namespace nereid::openai {

// Reads the body, which ParsedBody::Read has checked, for `model`.
Status ReadChatRequest(ParsedBody& body, const LlmSignature& model, GenerationRequest& request);

// Writes the inputs that form the prompt of a chat: messages, tools and template variables.
Status WriteConversation(ParsedBody& body, const LlmSignature& model, http::InputTensors& inputs);

std::unique_ptr<AnswerFormat> NewChatFormat(const GenerationRequest& request);

}  // namespace nereid::openai
