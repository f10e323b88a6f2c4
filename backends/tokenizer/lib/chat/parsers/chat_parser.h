/// \file
/// Separates the text of a model's answer into reasoning, content and tool calls. The text arrives
/// in arbitrary pieces; however it is cut, the concatenated deltas are the same, so that a whole
/// answer is a stream of one piece. A parser never fails: what is not a call is content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/chat/parsers/tool_schemas.h"

namespace nereid::tokenizer {

/// What a piece of text adds to one tool call.
struct ToolCallDelta {
  size_t index = 0;                ///< of the call in the answer, from 0
  std::string id = {}, name = {};  ///< both are set in the first delta of a call, and only there
  std::string arguments = {};      ///< the next piece of the JSON text of the arguments
};

/// What a piece of text adds to the answer.
struct AnswerDelta {
  std::string reasoning;
  std::string content;
  std::vector<ToolCallDelta> tool_calls;  ///< ascending by index, one for each call
};

/// Returns the deltas as a JSON array in the form of OpenAI's streams; "" if there are none.
std::string ToolCallsJson(std::span<const ToolCallDelta> deltas);

/// What a parser has to know about the request.
struct ParserOptions {
  /// The end of the prompt's text. It says whether the prompt has opened the reasoning, so that the
  /// answer begins inside of it.
  std::string_view prompt_end = {};
  /// The functions that the client offers. Null: the answer is not searched for calls.
  std::shared_ptr<const ToolSchemas> tools = nullptr;
  /// Ids of calls are derived from it, where the model does not write them itself.
  uint64_t id_seed = 0;
};

/// The parser of one answer. Runs in time linear in the text, with a bounded stack, and holds back
/// only text that may be the beginning of a marker, the name of a call with the text before it, and
/// values whose type is known only at their end. [one thread at a time]
class ChatParser {
 public:
  virtual ~ChatParser() = default;
  /// Appends to `delta` what `text` adds. If each text consists of whole UTF-8 characters, so does
  /// each delta.
  virtual void Push(std::string_view text, AnswerDelta& delta) = 0;
  /// Whether the text that was pushed last belongs to the reasoning.
  virtual bool IsReasoning() const = 0;
  /// Ends the answer: appends what was held back. The parser must not be used afterwards.
  virtual void Finish(AnswerDelta& delta) = 0;
};

}  // namespace nereid::tokenizer
