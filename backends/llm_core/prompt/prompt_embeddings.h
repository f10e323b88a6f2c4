/// \file
/// Places of a prompt that have an embedding from the client instead of a token: rows of a prompt
/// table (p-tuning), or embeddings that precede the tokens. [any thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/sampling/sampling_params.h"

namespace nereid::llm {

/// Constant once its request is queued. The prompt has a virtual token at each of these places: an
/// id of at least `vocab_size`, which VirtualTokens assigns by the content of the row. So equal ids
/// mean equal embeddings, and the prefix cache compares them like any token.
struct PromptEmbeddings {
  const char* input_name = "";  ///< the tensor that brought the rows, for errors
  int32_t vocab_size = 0;       ///< tokens of the model; greater ids are virtual
  int32_t hidden_size = 0;      ///< numbers in a row
  /// The rows are like those of the model's own embedding table: what the model multiplies with
  /// DecoderSpec::embedding_scale. False: they are multiplied only where transformers multiplies
  /// its inputs_embeds, see DecoderSpec::scales_input_embeddings.
  bool is_table = true;
  std::vector<int32_t> row_of;      ///< [tokens of the prompt]; kNoRow for a token
  std::vector<float> rows;          ///< [rows, hidden_size], each finite
  std::vector<uint64_t> extra_ids;  ///< [rows]: the client's prompt_table_extra_ids, or 0
  /// --- written by VirtualTokens ---
  std::vector<int32_t> ids;  ///< [rows]: the virtual tokens
  uint64_t cache_key = 0;    ///< distinguishes these ids from those of other times and processes

  static constexpr int32_t kNoRow = -1;

  int32_t num_rows() const { return static_cast<int32_t>(extra_ids.size()); }
  std::span<const float> Row(int32_t row) const {
    return std::span(rows).subspan(static_cast<size_t>(row) * static_cast<size_t>(hidden_size),
                                   static_cast<size_t>(hidden_size));
  }
  /// The row at a place of the sequence; kNoRow for a token of the prompt or the output.
  int32_t RowAt(int32_t position) const {
    return position < static_cast<int32_t>(row_of.size()) ? row_of[position] : kNoRow;
  }
  bool is_virtual(int32_t id) const { return id >= vocab_size; }
  /// Replaces the ids of `prompt`, which has row_of.size() ids, by the virtual tokens.
  void SetIds(TokenIds& prompt) const {
    for (size_t i = 0; i < row_of.size(); ++i) {
      if (row_of[i] != kNoRow) prompt[i] = ids[row_of[i]];
    }
  }
};

}  // namespace nereid::llm
