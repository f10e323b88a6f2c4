/// \file
/// Compares a tokenizer with the vocabulary of a checkpoint. [any thread]
#pragma once

#include <cstdint>
#include <string>

#include "backends/tokenizer/lib/tokenizer.h"

namespace nereid::tokenizer {

/// How a tokenizer fits a checkpoint with embeddings for the ids 0 to `model_vocab_size` - 1.
struct VocabularyFit {
  /// Ordinary tokens have ids that the checkpoint does not know: texts that contain them fail.
  bool is_refused = false;
  /// Empty if every token has an embedding. Otherwise names both sizes, for a message. Without
  /// is_refused, only special tokens have none; published checkpoints exist of which that is true.
  std::string fault;
};

/// `model_vocab_size`: 0 or less if it is not known, which fits.
VocabularyFit CompareVocabulary(const Tokenizer& tokenizer, int64_t model_vocab_size);

/// The `vocab_size` of a checkpoint's config.json, of its text model if it has several parts; 0 if
/// the file cannot be read or has none.
int64_t VocabularySizeOf(const std::string& config_path);

}  // namespace nereid::tokenizer
