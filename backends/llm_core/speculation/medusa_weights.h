/// \file
/// Reads Medusa heads: a file medusa_lm_head.safetensors beside config.json, the same tensors in a
/// whole model's checkpoint, or a checkpoint of the model type `medusa`. [load thread]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/llm_core/checkpoint/checkpoint.h"
#include "backends/llm_core/model/architecture.h"
#include "nereid/status.h"

namespace nereid::llm {

/// A head is num_blocks residual blocks, x + SiLU(weight x + bias), and a projection to the
/// vocabulary. Its input is the target's hidden state behind the final norm.
struct MedusaWeights {
  /// Only `weights` and the sizes of `spec` are set. Block b of head h is the layer
  /// h * num_blocks + b: WeightKind::kResidualBlock and, where there is one, kResidualBlockBias.
  /// The layer of a head's last block also has the head's kLmHead, unless shares_lm_head.
  DecoderModel model;
  int32_t num_heads = 0;
  int32_t num_blocks = 0;
  bool shares_lm_head = false;      ///< the projection is the target's own lm_head
  int32_t draft_vocab_size = 0;     ///< rows of a projection
  std::vector<int32_t> target_ids;  ///< [draft_vocab_size], or empty: they are the target's ids

  int32_t BlockLayer(int32_t head, int32_t block) const { return head * num_blocks + block; }
  int32_t OutputLayer(int32_t head) const { return BlockLayer(head, num_blocks - 1); }
  int32_t TargetId(int32_t draft_id) const {
    return target_ids.empty() ? draft_id : target_ids[static_cast<size_t>(draft_id)];
  }
};

/// Opens the file of heads in a folder. UNSUPPORTED names a pickled file, and how to convert it.
Result<Checkpoint> OpenMedusaCheckpoint(const std::string& folder);

/// INVALID_ARG names what does not fit the target: a hidden size or a vocabulary, with both
/// numbers, a vocabulary of fewer than kMaxMedusaTokens, a tensor that is missing or has another
/// shape, a value that is not finite.
Result<MedusaWeights> ReadMedusaWeights(const Checkpoint& checkpoint, const DecoderSpec& target);

}  // namespace nereid::llm
