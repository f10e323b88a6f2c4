// A request for text, as a route has read it: what the model gets and what the client wants back.
#pragma once

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
  size_t answers_per_prompt = 1;
  bool is_stream = false;
  bool has_usage_event = false;       // stream_options.include_usage
  bool has_usage_everywhere = false;  // stream_options.continuous_usage_stats
  bool has_log_probs = false;
  bool has_token_ids = false;
  bool keeps_first_tool_call_only = false;
  bool hides_reasoning = false;
};

// Adds the inputs of all prompts to the reservation of their request. UNAVAILABLE if the budget
// does not suffice. Small ones are not counted, like small bodies.
Status ReserveAll(std::span<const http::InputTensors> prompts, ByteReservation& reservation);

}  // namespace nereid::openai
