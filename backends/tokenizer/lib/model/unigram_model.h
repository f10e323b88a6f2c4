// The Unigram model: the segmentation of a text into tokens with the largest sum of scores, found
// by the Viterbi algorithm. Immutable, except for an atomic cache of which tokens their own text
// encodes to. [any thread]
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "backends/tokenizer/lib/model/tokenization_model.h"
#include "backends/tokenizer/lib/vocabulary/double_array_trie.h"
#include "backends/tokenizer/lib/vocabulary/token_table.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

struct UnigramOptions {
  std::optional<int32_t> unk_id = std::nullopt;
  bool byte_fallback = false;
  // Sums scores in single precision, as sentencepiece does. The choice between nearly equal
  // segmentations of long texts depends on it.
  bool single_precision = false;
};

class UnigramModel final : public TokenizationModel {
 public:
  struct Token {
    std::string_view text;  // an empty text is never matched
    int32_t id;
    double score;
  };

  // `vocabulary` must outlive the model. `unk_score` is the score of a character without a token.
  UnigramModel(const TokenTable& vocabulary, const std::vector<Token>& tokens, double unk_score,
               UnigramOptions options);
  UnigramModel(const UnigramModel&) = delete;
  UnigramModel& operator=(const UnigramModel&) = delete;

  void Encode(std::string_view pretoken, ModelScratch& scratch,
              std::vector<int32_t>& out) const override;
  void EncodeSpans(std::string_view pretoken, ModelScratch& scratch,
                   std::vector<TokenSpan>& out) const override;

 private:
  enum Memo : uint8_t { kUnknown, kEncodesToItself, kEncodesToOthers };

  void EncodeByScores(std::string_view pretoken, ModelScratch& scratch,
                      std::vector<int32_t>& out) const;
  // Calls `visit(begin, end, id)` for the tokens of the best segmentation. Where no token matches,
  // `id` is the unknown token's, or -1 without one.
  template <typename Visit>
  void ForEachToken(std::string_view pretoken, ModelScratch& scratch, Visit visit) const;
  template <typename Score>
  void RunViterbi(std::string_view pretoken, ModelScratch& scratch) const;
  void AppendUnknown(std::string_view text, int32_t id, std::vector<int32_t>& out) const;

  const TokenTable& vocabulary_;
  UnigramOptions options_;
  DoubleArrayTrie trie_;
  std::vector<double> scores_;  // [id]
  double unk_score_;
  std::array<int32_t, 256> fallback_;             // id of <0xHH>, or -1
  std::unique_ptr<std::atomic<uint8_t>[]> memo_;  // [entry of vocabulary_] Memo
};

}  // namespace nereid::tokenizer
