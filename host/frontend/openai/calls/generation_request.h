// A request for text, as a route has read it: what the model gets and what the client wants back.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/byte_budget.h"
#include "host/frontend/http/bodies/infer_body.h"
#include "nereid/status.h"

namespace nereid::openai {

struct GenerationRequest {
  std::string model;  // that is called
  std::string id;     // of the request; empty: that of the answer
  // The inputs of one model request for each prompt.
  std::vector<http::InputTensors> prompts;
  std::vector<std::string> outputs;  // that the model is asked for
  size_t answers_per_prompt = 1;     // that the model makes
  // best_of: so many answers to each prompt are returned, the most likely ones. 0: all.
  size_t kept_per_prompt = 0;
  // The answer to a prompt was ended by max_tokens, and by nothing else, if it has so many tokens.
  // 0: the number of tokens does not tell what ended it.
  int64_t length_tokens = 0;
  bool is_stream = false;
  // A stream that is silent for so many seconds gets a comment: proxies close it otherwise.
  int32_t keep_alive_s = 15;
  bool has_usage_event = false;       // stream_options.include_usage
  bool has_usage_everywhere = false;  // stream_options.continuous_usage_stats
  bool has_log_probs = false;
  bool has_prompt_log_probs = false;  // prompt_logprobs
  bool echoes_prompt = false;         // with log probabilities if has_log_probs
  // max_tokens is 0: answers are the prompts alone. The model makes a token, which is dropped.
  bool drops_tokens = false;
  // The texts of the prompts, for streams that echo them and for requests whose tokens are dropped.
  // The text of a prompt of token ids is empty. Empty list: the model itself repeats the prompts.
  std::vector<std::string> echoes;
  bool has_token_ids = false;
  bool keeps_first_tool_call_only = false;
  bool hides_reasoning = false;
};

// Adds the inputs of all prompts to the reservation of their request. UNAVAILABLE if the budget
// does not suffice. Small ones are not counted, like small bodies.
Status ReserveAll(std::span<const http::InputTensors> prompts, ByteReservation& reservation);

}  // namespace nereid::openai
