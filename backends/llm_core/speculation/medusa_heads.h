/// \file
/// The interface between the Medusa drafter, which handles sequences, and what runs the heads: each
/// head predicts one of the tokens that follow the next one, from the target's last hidden state.
/// [engine thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/sampling/log_probs.h"
#include "backends/llm_core/speculation/hidden_rows.h"
#include "nereid/status.h"

namespace nereid::llm {

/// The most tokens of a head that are ranked, and the least that a head knows.
inline constexpr int32_t kMaxMedusaTokens = 16;

/// Has a store of hidden states, in which each sequence has one row: that of the last token that
/// the target ran. It is the output of the target's last layer; Run applies the target's final norm
/// before the heads read it.
class MedusaHeads : public HiddenStateStore {
 public:
  using HiddenStateStore::HiddenStateStore;
  virtual int32_t num_heads() const = 0;
  /// Runs the first `num_heads` heads on rows of the store, which stay there. `tokens`, out:
  /// [rows, num_heads, num_tokens], the likeliest tokens of each head, most likely first, ties by
  /// id, with their log probabilities in the head's own distribution. `num_tokens` is at most
  /// kMaxMedusaTokens. After an error, nothing is called again.
  virtual Status Run(std::span<const int32_t> rows, int32_t num_heads, int32_t num_tokens,
                     std::vector<SampledToken>& tokens) = 0;
};

}  // namespace nereid::llm
