// Reads the draft tokens that a client sends with its request. [instance thread]
#pragma once

#include <vector>

#include "backends/llm_core/adapter/batch_inputs.h"
#include "backends/llm_core/sampling/sampling_params.h"
#include "nereid/status.h"

namespace nereid::llm {

struct DraftInputs {
  TokenIds ids;               // draft_input_ids
  std::vector<float> logits;  // draft_logits, row after row
  float threshold = 0.0f;     // draft_acceptance_threshold
};

// INVALID_ARG names the tensor. The engine checks that the numbers of ids and logits fit together.
Status ReadDraftInputs(BatchInputs& inputs, int64_t row, DraftInputs& drafts);

// Sets `speculates` to the request parameter `speculative_decoding`, if there is one.
Status ReadSpeculates(const Request& request, bool& speculates);

}  // namespace nereid::llm
