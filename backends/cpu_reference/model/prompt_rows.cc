// Looks up the rows of virtual tokens as the embedding does those of tokens.
#include "backends/cpu_reference/model/prompt_rows.h"

#include <algorithm>

#include "backends/llm_core/prompt/prompt_embeddings.h"

namespace nereid::cpu {

const int32_t* PromptRows::TokensOf(const llm::StepBatch& batch) {
  const auto has_embeddings = [](const llm::BatchEntry& entry) {
    return entry.prompt_embeddings != nullptr;
  };
  if (std::none_of(batch.entries.begin(), batch.entries.end(), has_embeddings)) {
    return batch.token_ids.data();
  }
  token_ids_ = batch.token_ids;
  for (int32_t& id : token_ids_) id = id < spec_.vocab_size ? id : 0;
  return token_ids_.data();
}

void PromptRows::Embed(const llm::StepBatch& batch, const EmbeddingParams& step) const {
  for (const llm::BatchEntry& entry : batch.entries) {
    if (entry.prompt_embeddings != nullptr) EmbedEntry(entry, step);
  }
}

void PromptRows::EmbedEntry(const llm::BatchEntry& entry, const EmbeddingParams& step) const {
  const llm::PromptEmbeddings& embeddings = *entry.prompt_embeddings;
  EmbeddingParams params = step;
  params.table = {.data = embeddings.rows.data(),
                  .type = WeightFormat::kF32,
                  .rows = embeddings.num_rows(),
                  .columns = spec_.hidden_size};
  if (!embeddings.is_table && !spec_.scales_input_embeddings) params.scale = 1.0f;
  params.num_tokens = 1;
  for (int32_t i = 0; i < entry.num_tokens; ++i) {
    const int32_t row = embeddings.RowAt(entry.num_cached + i);
    if (row == llm::PromptEmbeddings::kNoRow) continue;
    const int64_t token = entry.first_token + i;
    params.ids = &row;
    params.positions = step.positions + token;
    params.out = step.out + token * spec_.hidden_size;
    ops_.embedding(params);
  }
}

}  // namespace nereid::cpu
