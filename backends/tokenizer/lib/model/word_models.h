// The models that take a pre-token as one word. WordLevel looks it up; WordPiece divides it
// greedily into the longest tokens, from its start. Immutable. [any thread]
#pragma once

#include <optional>
#include <string>

#include "backends/tokenizer/lib/model/tokenization_model.h"
#include "backends/tokenizer/lib/vocabulary/token_table.h"

namespace nereid::tokenizer {

class WordLevelModel final : public TokenizationModel {
 public:
  // `vocabulary` must outlive the model. Without `unk_id`, unknown words are an error.
  WordLevelModel(const TokenTable& vocabulary, std::optional<int32_t> unk_id)
      : vocabulary_(vocabulary), unk_id_(unk_id) {}

  void Encode(std::string_view pretoken, ModelScratch& scratch,
              std::vector<int32_t>& out) const override;
  void EncodeSpans(std::string_view pretoken, ModelScratch& scratch,
                   std::vector<TokenSpan>& out) const override;

 private:
  const TokenTable& vocabulary_;
  std::optional<int32_t> unk_id_;
};

class WordPieceModel final : public TokenizationModel {
 public:
  struct Options {
    int32_t unk_id;
    std::string continuing_prefix = "##";
    size_t max_chars = 100;  // longer words are encoded as unknown
  };

  // `vocabulary` must outlive the model.
  WordPieceModel(const TokenTable& vocabulary, Options options);

  void Encode(std::string_view pretoken, ModelScratch& scratch,
              std::vector<int32_t>& out) const override;
  void EncodeSpans(std::string_view pretoken, ModelScratch& scratch,
                   std::vector<TokenSpan>& out) const override;

 private:
  // Calls `visit(id, end)` for each token. Returns false for an unknown word.
  template <typename Visit>
  bool ForEachToken(std::string_view pretoken, ModelScratch& scratch, Visit visit) const;

  const TokenTable& vocabulary_;
  Options options_;
};

}  // namespace nereid::tokenizer
