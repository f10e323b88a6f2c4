// POST /v1/messages and /v1/messages/count_tokens: conversations in Anthropic's form. A request is
// turned into a chat's (chat_completions.h), so that the same code reads both. [one thread]
#pragma once

#include <string>

#include "host/frontend/openai/fields/parsed_body.h"
#include "nereid/status.h"

namespace nereid::openai {

// Returns the body of the chat that `body`, which ParsedBody::Read has checked, asks for. A request
// to count tokens has no max_tokens. `limits_reasoning`: the model has the input that a
// `thinking.budget_tokens` needs, which has no effect otherwise.
Result<std::string> ChatOfMessages(ParsedBody& body, bool counts_tokens, bool limits_reasoning);

}  // namespace nereid::openai
