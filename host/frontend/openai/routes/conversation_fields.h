// The fields of a conversation: what the chat template gets. Functions that fail have called
// ParsedBody::Refuse. [one thread]
#pragma once

#include <string>

#include "host/frontend/openai/fields/parsed_body.h"
#include "host/frontend/openai/tensors/llm_signature.h"
#include "nereid/status.h"

namespace nereid::openai {

// Checks the messages of a chat and appends them as the text of the model's input `messages`. What
// some clients call `reasoning` is also given as `reasoning_content`, which templates know.
Status AppendMessages(ParsedBody& body, const LlmSignature& model, std::string& json);

// Checks the tools: objects of the type `function` with a name.
Status CheckTools(ParsedBody& body);

// What a client says about the use of its tools.
struct ToolUse {
  bool shows_tools = false;  // to the model
  std::string forced = {};   // of the model's input tool_choice: the calls that it must make
};

// Reads `tool_choice`. A function that it names is among the tools.
Result<ToolUse> ReadToolUse(ParsedBody& body);

// The input chat_template_kwargs: variables for the template from several fields. Empty: none.
Result<std::string> TemplateVariables(ParsedBody& body);

}  // namespace nereid::openai
