// Reads the tensors of a request whose prompt is not only tokens: a prompt table with its ids, or
// embeddings before the tokens. [instance thread]
#pragma once

#include <memory>

#include "backends/llm_core/adapter/batch_inputs.h"
#include "backends/llm_core/prompt/prompt_embeddings.h"
#include "nereid/status.h"

namespace nereid::llm {

// The embeddings of one batch item; null if it has none. `prompt` is the item's input_ids. Ids of
// the vocabulary's size or more are those of the table's rows. For `prompt_embeds`, an id of the
// same kind is put before the tokens for each row, so that `prompt` has an id for each place.
Result<std::shared_ptr<PromptEmbeddings>> ReadPromptEmbeddings(BatchInputs& inputs, int64_t row,
                                                               int32_t vocab_size,
                                                               int32_t hidden_size,
                                                               TokenIds& prompt);

}  // namespace nereid::llm
