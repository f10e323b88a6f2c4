// POST /v1/responses: conversations whose answers are stored and can be continued. A request is
// turned into a chat's (chat_completions.h), so that the same code reads both. [one thread]
#pragma once

#include <string>
#include <string_view>

#include "host/frontend/openai/fields/parsed_body.h"
#include "nereid/status.h"

namespace nereid::openai {

// A request for a response, as a chat.
struct ResponseChat {
  std::string chat;   // the body of the chat
  std::string items;  // a JSON list: the conversation without the answer
  std::string echo;   // the members of the answer that repeat the request, without braces
};

// `body` has been checked by ParsedBody::Read. `earlier_items` is the conversation that the request
// continues (StoredResponse::items), or empty.
Result<ResponseChat> ChatOfResponse(ParsedBody& body, std::string_view earlier_items);

}  // namespace nereid::openai
