// The models that take a piece as a word: WordLevel looks it up, WordPiece cuts it into the longest
// tokens from its start. Immutable. [any thread]
#pragma once

#include <optional>
#include <string>

#include "backends/tokenizer/lib/model/text_model.h"
#include "backends/tokenizer/lib/vocabulary/token_table.h"

namespace nereid::tokenizer {

class WordLevelModel final : public TextModel {
 public:
  // `vocabulary` must outlive the model. Without `unk_id` unknown words vanish.
  WordLevelModel(const TokenTable& vocabulary, std::optional<int32_t> unk_id)
      : vocabulary_(vocabulary), unk_id_(unk_id) {}

  void Encode(std::string_view piece, ModelScratch& scratch,
              std::vector<int32_t>& out) const override;
  void EncodeSpans(std::string_view piece, ModelScratch& scratch,
                   std::vector<PieceToken>& out) const override;

 private:
  const TokenTable& vocabulary_;
  std::optional<int32_t> unk_id_;
};

class WordPieceModel final : public TextModel {
 public:
  struct Options {
    int32_t unk_id;
    std::string continuing_prefix = "##";
    size_t max_chars = 100;  // longer words are unknown
  };

  // `vocabulary` must outlive the model.
  WordPieceModel(const TokenTable& vocabulary, Options options);

  void Encode(std::string_view piece, ModelScratch& scratch,
              std::vector<int32_t>& out) const override;
  void EncodeSpans(std::string_view piece, ModelScratch& scratch,
                   std::vector<PieceToken>& out) const override;

 private:
  // Where each token ends; nothing for an unknown word.
  template <typename Visit>
  bool ForEachToken(std::string_view piece, ModelScratch& scratch, Visit visit) const;

  const TokenTable& vocabulary_;
  Options options_;
};

}  // namespace nereid::tokenizer
