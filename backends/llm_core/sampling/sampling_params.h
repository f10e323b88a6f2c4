/// \file
/// The sampling parameters of a request. Immutable once the request is accepted. [any thread]
#pragma once

#include <cstdint>
#include <vector>

#include "nereid/status.h"

namespace nereid::llm {

using TokenIds = std::vector<int32_t>;

inline constexpr size_t kMaxLogitBias = 1024;
inline constexpr int32_t kMaxTopLogProbs = 20;

/// What is added to the logit of one token.
struct LogitBias {
  int32_t id = 0;
  float value = 0.0f;
};

/// The rules apply in this order: embedding and logit bias; repetition, presence and frequency
/// penalties; bans by bad words, repeated n-grams, allowed and banned ids, and by a grammar;
/// temperature; top-k; top-p over the tokens that top-k kept; min-p; draw. Penalties count every
/// token of the sequence, prompt included, but for the first prompt_ignore_length tokens.
struct SamplingParams {
  float temperature = 1.0f;  ///< 0: greedy
  int32_t top_k = 0;         ///< 0: no limit; 1: greedy
  float top_p = 0.0f;        ///< 0: not set. Greedy if neither top_k, top_p nor min_p is set
  float min_p = 0.0f;        ///< minimum probability, relative to the most likely token
  float top_p_decay = 1.0f;  ///< factor on top_p for each output token ...
  float top_p_min = 1e-6f;   ///< ... down to this minimum ...
  /// ... and restored to the initial value after this token; -1: none
  int32_t top_p_reset_id = -1;
  float repetition_penalty = 1.0f;  ///< > 1 makes repeated tokens less likely
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  int32_t prompt_ignore_length = 0;  ///< the penalties do not count the first tokens of the prompt
  uint64_t seed = 0;
  std::vector<float> embedding_bias;  ///< [vocab_size] or empty; added to the logits
  std::vector<LogitBias> logit_bias;  ///< at most kMaxLogitBias; those of one id add up
  TokenIds allowed_ids;               ///< no other token may be sampled; empty: all
  std::vector<TokenIds> bad_words;    ///< token sequences that must not be completed
  int32_t no_repeat_ngram_size = 0;   ///< > 0: no n-gram of this size may occur twice; 0: off
  bool returns_log_probs = false;
  /// How many of the most likely tokens are returned with each sampled one: up to kMaxTopLogProbs
  /// and the vocabulary.
  int32_t num_top_log_probs = 0;

  bool is_greedy() const {
    return top_k == 1 || temperature == 0.0f || (top_k == 0 && top_p == 0.0f && min_p == 0.0f);
  }
  bool changes_logits() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f ||
           !embedding_bias.empty() || !logit_bias.empty() || !allowed_ids.empty() ||
           !bad_words.empty() || no_repeat_ngram_size > 0;
  }
  /// Whether the distribution of the next token depends on the sampled tokens themselves rather
  /// than only on their number. The model's own dependence is not counted.
  bool reads_output() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f ||
           !bad_words.empty() || no_repeat_ngram_size > 0 ||
           (top_p_decay != 1.0f && top_p_reset_id >= 0);
  }
};

/// INVALID_ARG names the parameter, its value and the range.
Status CheckSamplingParams(const SamplingParams& params, int32_t vocab_size);
/// Checks top_p_min, which clients can send under two names; `name` is used in the message.
Status CheckTopPMin(const char* name, float value);

}  // namespace nereid::llm
