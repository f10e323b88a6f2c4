// The answers to one request, while they are made, and how a route writes them. [loop thread]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/frontend/openai/fields/api_error.h"
#include "host/frontend/openai/tensors/answer_piece.h"

namespace nereid::openai {

// What an answer consists of so far. Texts are collected only where AnswerFormat::NeedsWhole.
struct Answer {
  std::string text, reasoning;
  std::vector<ToolCallPiece> tool_calls;  // whole calls, by index
  std::string finish_reason;              // of the model
  std::string stop_reason;
  std::vector<TokenLogProb> log_probs;
  std::vector<int64_t> token_ids, prompt_ids;
  int64_t num_tokens = 0;
  std::optional<int64_t> num_reasoning_tokens;  // none if the model does not tell it
  bool has_tool_calls = false;
  bool has_begun = false;     // of a stream: a piece of it was written
  float cum_log_prob = 0.0f;  // the sum over its tokens, if the model reports it

  // stop, length or tool_calls; empty while the answer goes on.
  std::string_view FinishReason() const;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  std::optional<int64_t> cached_tokens, reasoning_tokens;
};

// The answers to all prompts of a request: those to the first prompt, then those to the next one.
struct Answers {
  std::string id;       // with the prefix of its route
  int64_t created = 0;  // Unix time in seconds
  std::string model;
  std::vector<Answer> all;
  // By prompt; missing until the model has reported them.
  std::vector<int64_t> prompt_tokens;
  std::vector<std::optional<int64_t>> cached_tokens;
  std::vector<std::vector<PromptToken>> prompts;  // the tokens of the prompts, if asked for
  int64_t dropped_tokens = 0;                     // of answers that are not returned

  Usage TotalUsage() const;
};

// Writes answers as one route's JSON. One object for each request.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // The body of an answer that is not streamed.
  virtual std::string Whole(const Answers& answers) = 0;

  // ---- Streams: appends server-sent events.
  virtual void AppendBegin(std::string&, const Answers&) {}
  // `answer` is the index of the answer that `piece` has already been added to.
  virtual void AppendPiece(std::string& events, const Answers& answers, size_t answer,
                           const AnswerPiece& piece) = 0;
  virtual void AppendClosing(std::string& events, const Answers& answers) = 0;
  // An error after the stream has begun. Nothing follows.
  virtual void AppendError(std::string& events, const ApiError& error) = 0;
  // Sent while the model is silent.
  virtual std::string_view KeepAlive() const { return ": keep-alive\n\n"; }

  // The body of an error before the stream has begun.
  virtual std::string Error(const ApiError& error) const { return ErrorJson(error); }
  // True if a stream collects the whole answers, too.
  virtual bool NeedsWhole() const { return false; }
};

// Returns `prefix` and 32 random hexadecimal digits, which nobody can guess.
std::string NewId(std::string_view prefix);

// Appends {"prompt_tokens": ...}.
void AppendUsage(std::string& json, const Usage& usage);

// Appends the member ,"name":[1,2].
void AppendIds(std::string& json, std::string_view name, const std::vector<int64_t>& ids);

// Appends the member ,"prompt_logprobs":[null,{"<id>":{"logprob":...,"rank":...,
// "decoded_token":...}}]. The rank of a token that is not among the most likely ones is null.
void AppendPromptLogProbs(std::string& json, const std::vector<PromptToken>& prompt);

// Appends a number that JSON can express: OpenAI's least log probability is -9999.
void AppendLogProb(std::string& json, float log_prob);

}  // namespace nereid::openai
