// The Unigram model: of all ways to cut a text into tokens, the one with the largest sum of scores.
// Immutable but for a memo of which tokens their own text encodes to. [any thread]
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "backends/tokenizer/lib/model/text_model.h"
#include "backends/tokenizer/lib/vocabulary/prefix_trie.h"
#include "backends/tokenizer/lib/vocabulary/token_table.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

struct UnigramOptions {
  std::optional<int32_t> unk_id = std::nullopt;
  bool byte_fallback = false;
  // Sums in single precision, as sentencepiece has them: near-ties of long texts depend on it.
  bool single_precision = false;
};

class UnigramModel final : public TextModel {
 public:
  struct Token {
    std::string_view text;  // empty: is never matched
    int32_t id;
    double score;
  };

  // `vocabulary` must outlive the model. `unk_score` is that of a character that no token has.
  UnigramModel(const TokenTable& vocabulary, const std::vector<Token>& tokens, double unk_score,
               UnigramOptions options);
  UnigramModel(const UnigramModel&) = delete;
  UnigramModel& operator=(const UnigramModel&) = delete;

  void Encode(std::string_view piece, ModelScratch& scratch,
              std::vector<int32_t>& out) const override;
  void EncodeSpans(std::string_view piece, ModelScratch& scratch,
                   std::vector<PieceToken>& out) const override;

 private:
  enum Memo : uint8_t { kUnknown, kItself, kDiffers };

  void EncodeByScores(std::string_view piece, ModelScratch& scratch,
                      std::vector<int32_t>& out) const;
  // Calls `visit(begin, end, id)` for the tokens of the best way; id is the unknown one where no
  // token was found.
  template <typename Visit>
  void ForEachToken(std::string_view piece, ModelScratch& scratch, Visit visit) const;
  template <typename Score>
  void FindPaths(std::string_view piece, ModelScratch& scratch) const;
  void AppendToken(std::string_view text, int32_t id, std::vector<int32_t>& out) const;

  const TokenTable& vocabulary_;
  UnigramOptions options_;
  PrefixTrie trie_;
  std::vector<double> scores_;  // [id]
  double unk_score_;
  std::array<int32_t, 256> fallback_;             // id of <0xHH>, or -1
  std::unique_ptr<std::atomic<uint8_t>[]> memo_;  // [entry of vocabulary_] Memo
};

}  // namespace nereid::tokenizer
