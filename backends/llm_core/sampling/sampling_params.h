// How a request wants its next token chosen. Immutable once the request is accepted. [any thread]
#pragma once

#include <cstdint>
#include <vector>

#include "nereid/status.h"

namespace nereid::llm {

using TokenIds = std::vector<int32_t>;

// The order of the rules: bias, repetition, presence and frequency penalties, bad words, repeated
// n-grams and ids that may not come yet, temperature, top-k, top-p (over what top-k left), min-p,
// draw. The penalties count every token of the sequence, prompt included.
struct SamplingParams {
  float temperature = 1.0f;         // 0: greedy
  int32_t top_k = 0;                // 0: all; 1: greedy
  float top_p = 0.0f;               // 0: not given. Neither top_k nor top_p given: greedy
  float min_p = 0.0f;               // keeps tokens at least this likely, relative to the likeliest
  float top_p_decay = 1.0f;         // top_p shrinks by this factor with each token ...
  float top_p_min = 1e-6f;          // ... down to this ...
  int32_t top_p_reset_id = -1;      // ... and starts anew after this token
  float repetition_penalty = 1.0f;  // > 1 makes repeated tokens less likely
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint64_t seed = 0;
  std::vector<float> embedding_bias;  // [vocab_size] or empty: added to the logits
  std::vector<TokenIds> bad_words;    // sequences that must not be completed
  int32_t no_repeat_ngram_size = 0;   // > 0: no run of so many tokens may come twice
  bool want_log_probs = false;

  bool is_greedy() const {
    return top_k == 1 || temperature == 0.0f || (top_k == 0 && top_p == 0.0f && min_p == 0.0f);
  }
  bool changes_logits() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f ||
           !embedding_bias.empty() || !bad_words.empty() || no_repeat_ngram_size > 0;
  }
  // Whether the next token's distribution depends on more of the tokens drawn than their number,
  // the model aside.
  bool reads_output() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f ||
           !bad_words.empty() || no_repeat_ngram_size > 0 ||
           (top_p_decay != 1.0f && top_p_reset_id >= 0);
  }
};

// INVALID_ARG names the parameter, its value and the range.
Status CheckSamplingParams(const SamplingParams& params, int32_t vocab_size);
// Of top_p_min, which clients know under two names.
Status CheckTopPMin(const char* name, float value);

}  // namespace nereid::llm
