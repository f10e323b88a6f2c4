// What chat completions and completions have in common: the beginning of an answer, usage, and the
// end of a stream, whose events are chunks with the same beginning. [loop thread]
#pragma once

#include <string>
#include <string_view>

#include "host/frontend/openai/calls/answers.h"
#include "host/frontend/openai/calls/generation_request.h"

namespace nereid::openai {

class ChunkFormat : public AnswerFormat {
 public:
  void AppendClosing(std::string& events, const Answers& answers) override;
  void AppendError(std::string& events, const ApiError& error) override;

 protected:
  explicit ChunkFormat(const GenerationRequest& request);

  // Appends an answer up to its first choice. `object` is the name of its kind.
  static void AppendHead(std::string& json, const Answers& answers, std::string_view object);
  // Appends the member "finish_reason": null while the answer goes on.
  static void AppendFinishReason(std::string& json, std::string_view reason);
  // Appends the member "stop_reason": null without a stop word.
  static void AppendStopReason(std::string& json, std::string_view stop);
  // Ends a chunk behind its choices.
  void EndChunk(std::string& events, const Answers& answers) const;

  const bool has_log_probs_, has_token_ids_, has_prompt_log_probs_, has_usage_event_,
      has_usage_everywhere_;
  std::string head_;  // the beginning of each chunk; AppendBegin() sets it
};

}  // namespace nereid::openai
