/// \file
/// Reads an EAGLE-3 head in Hugging Face's form or in that of `speculators`. [load thread]
#pragma once

#include <string>
#include <vector>

#include "backends/llm_core/checkpoint/checkpoint.h"
#include "backends/llm_core/model/architecture.h"
#include "nereid/status.h"

namespace nereid::llm {

/// The head as a decoder of one layer, whose q, k and v take two hidden states side by side.
struct Eagle3Head {
  DecoderModel model;                 ///< spec.vocab_size: of the target
  int32_t draft_vocab_size = 0;       ///< rows of the head's own lm_head
  std::vector<int32_t> aux_layers;    ///< whose inputs in the target are the features
  std::vector<int32_t> target_ids;    ///< [draft_vocab_size]
  bool norm_before_residual = false;  ///< the residual is the normed hidden state
  bool has_embedding = false;         ///< otherwise the target's is used
};

/// INVALID_ARG names what does not fit the target: a hidden size or a vocabulary, with both
/// numbers, a layer, a tensor. UNSUPPORTED names an option of the config that this engine does not
/// have.
Result<Eagle3Head> ReadEagle3Head(const Checkpoint& checkpoint, const DecoderSpec& target);

}  // namespace nereid::llm
