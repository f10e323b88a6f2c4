// What one response of a model adds to an answer. [any thread]
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nereid/infer_response.h"
#include "nereid/status.h"

namespace nereid::openai {

struct TokenLogProb {
  struct Candidate {
    std::string bytes;
    float log_prob = 0;
  };
  Candidate chosen;
  std::vector<Candidate> top;  // the most likely tokens, best first
};

// A token of a prompt.
struct PromptToken {
  struct Candidate {
    int64_t id = 0;
    std::string bytes;
    float log_prob = 0;
  };
  int64_t id = 0;
  std::string bytes;
  std::optional<float> log_prob;  // none for the first one, or where it was not asked for
  std::vector<Candidate> top;     // the most likely tokens at its place, best first
};

// A piece of a tool call. The first one of an index has the id and the name.
struct ToolCallPiece {
  int64_t index = 0;
  std::string id, name, arguments;
};

// The part of a response that belongs to one sequence.
struct AnswerPiece {
  size_t sequence = 0;  // among those of the request
  std::string text, reasoning;
  std::vector<ToolCallPiece> tool_calls;
  std::string finish_reason;  // of the model: stop, length, cancelled; empty: it goes on
  std::string stop_reason;    // the stop text or token id; may be empty
  std::optional<int64_t> num_input_tokens, num_output_tokens, num_cached_tokens;
  std::optional<int64_t> num_reasoning_tokens;  // of this piece alone
  std::vector<TokenLogProb> log_probs;
  std::vector<int64_t> token_ids, prompt_ids;
  std::vector<PromptToken> prompt;    // of the first piece, if the model reports its tokens
  std::optional<float> cum_log_prob;  // of the answer so far

  // True if there is nothing to send.
  bool is_empty() const {
    return text.empty() && reasoning.empty() && tool_calls.empty() && finish_reason.empty() &&
           log_probs.empty() && token_ids.empty();
  }
};

// The outputs of a response without an error. A response of several sequences has a text for each.
// INTERNAL if the outputs contradict each other.
Result<std::vector<AnswerPiece>> ReadAnswerPieces(std::span<const OutputView> outputs);

// Parses the output tool_calls: a list of pieces in OpenAI's form. Empty if `json` is.
Result<std::vector<ToolCallPiece>> ReadToolCalls(std::string_view json);

// The texts of a BYTES tensor. INTERNAL if the lengths do not fill `data`.
Result<std::vector<std::string_view>> ReadTexts(std::string_view data);

}  // namespace nereid::openai
