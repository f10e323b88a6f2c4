/// \file
/// Forced tool calls: the form that an answer must have so that it consists of calls of the
/// functions that a client offers, as a structural tag for the engine's grammar. [any thread]
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "backends/tokenizer/lib/chat/parsers/parser_family.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

/// What a client says about the calls of an answer.
struct ToolChoice {
  bool is_forced = false;     ///< the answer consists of calls
  std::string function = {};  ///< exactly one call, of this function; "": of any function
};

/// Reads `auto`, `none`, `required`, or OpenAI's JSON object
/// {"type": "function", "function": {"name": "f"}}. "" is `auto`. INVALID_ARG: anything else.
Result<ToolChoice> ParseToolChoice(std::string_view text);

/// Where the calls stand.
struct CallGuideOptions {
  /// The text of the chat template, which says which form of its family the model knows.
  std::string_view chat_template = {};
  /// The end of the prompt. If it opens the reasoning, the guide closes it at once.
  std::string_view prompt_end = {};
  bool has_one_call = false;
};

/// Returns the text of a structural tag. Every text of it is parsed by `family` into calls of
/// `tools` (OpenAI's list) whose arguments are valid against the functions' schemas. Tag i belongs
/// to tool i, unless `choice` names a function. `choice` must be forced. INVALID_ARG: the
/// family has no calls, a function is not among the tools, a name or the type of the arguments
/// cannot be written. What the schemas say is checked where the guide is compiled.
Result<std::string> ForcedCallsGuide(const ParserFamily& family,
                                     const nlohmann::ordered_json& tools, const ToolChoice& choice,
                                     const CallGuideOptions& options);

}  // namespace nereid::tokenizer
