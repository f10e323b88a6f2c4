// Reads the inputs that choose the tokens of an output beyond the parameters of sampling: beams,
// several sequences and rules on single tokens. Refuses what the model's decoding_mode does not
// provide. [instance thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/adapter/batch_inputs.h"
#include "backends/llm_core/adapter/client_request.h"
#include "nereid/status.h"

namespace nereid::llm {

// INVALID_ARG names the tensor, its value and the expected one, in all of these functions.
Status ReadBeams(BatchInputs& inputs, int64_t row, const RequestDefaults& defaults,
                 GenerationRequest& generation);
// Biases, allowed tokens and bad words.
Status ReadTokenRules(BatchInputs& inputs, int64_t row, SamplingParams& sampling);

// The most ids of a word list. The engine compares each word with the output after each token.
inline constexpr size_t kMaxWordIds = 65536;

// Parses a word list of shape [2, n]: all ids, then the cumulative end of each word, padded with
// -1. At most kMaxWordIds ids.
Result<std::vector<TokenIds>> ReadWords(const char* name, std::span<const int32_t> elements);

// Refuses inputs that the mode does not provide, because their effect would be missed. Values
// without effect pass, because clients send them as defaults.
Status CheckDecodingMode(DecodingMode mode, const GenerationRequest& generation);

}  // namespace nereid::llm
