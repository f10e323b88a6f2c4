// Puts the rows of prompt embeddings in the places of virtual tokens. [engine thread]
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu_reference/ops/op_table.h"
#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/model/decoder_spec.h"

namespace nereid::cpu {

class PromptRows {
 public:
  // Both must outlive the object.
  PromptRows(const llm::DecoderSpec& spec, const OpTable& ops) : spec_(spec), ops_(ops) {}

  // The ids of the step, with a valid one in place of each virtual token. Valid until the next
  // call, or as long as `batch`.
  const int32_t* TokensOf(const llm::StepBatch& batch);
  // Repeats `step`, the embedding of all tokens of the step, for the virtual ones, with the
  // clients' rows as the table.
  void Embed(const llm::StepBatch& batch, const EmbeddingParams& step) const;

 private:
  void EmbedEntry(const llm::BatchEntry& entry, const EmbeddingParams& step) const;

  const llm::DecoderSpec& spec_;
  const OpTable& ops_;
  std::vector<int32_t> token_ids_;  // [num_tokens], of a step with prompt embeddings
};

}  // namespace nereid::cpu
