// Byte-pair encoding of one piece of text. Immutable after Build, but for a memo of which tokens
// their own text encodes to. [any thread]
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backends/tokenizer/lib/model/text_model.h"
#include "backends/tokenizer/lib/vocabulary/merge_table.h"
#include "backends/tokenizer/lib/vocabulary/token_table.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

struct BpeOptions {
  bool byte_level = false;     // pieces are bytes; tokens are spelt in their printable form
  bool byte_fallback = false;  // unknown characters become <0xHH> tokens
  bool fuse_unk = false;       // neighbouring unknown characters become one unknown token
  bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges say
  std::optional<int32_t> unk_id = std::nullopt;
  std::string continuing_prefix =
      {};                       // how characters behind the first are spelt in the vocabulary
  std::string end_suffix = {};  // and the last one
};

struct MergeRule {
  int32_t left, right, merged;
  uint32_t rank;
};

class BpeModel final : public TextModel {
 public:
  // `vocabulary` must outlive the model.
  BpeModel(const TokenTable& vocabulary, const std::vector<MergeRule>& rules, BpeOptions options);
  BpeModel(const BpeModel&) = delete;  // refers to itself
  BpeModel& operator=(const BpeModel&) = delete;

  // Appends the ids of `piece`: UTF-8, or any bytes when byte-level.
  void Encode(std::string_view piece, ModelScratch& scratch,
              std::vector<int32_t>& out) const override;
  void EncodeSpans(std::string_view piece, ModelScratch& scratch,
                   std::vector<PieceToken>& out) const override;
  bool searches_vocabulary() const override { return !options_.byte_level || has_affixes(); }

 private:
  enum Memo : uint8_t { kUnknown, kItself, kDiffers };

  void BuildUnits(const TokenTable& vocabulary);
  bool WordsAreIndependent(const TokenTable& vocabulary, const std::vector<MergeRule>& rules) const;
  void EncodeWord(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const;
  void EncodeByMerges(std::string_view word, ModelScratch& scratch,
                      std::vector<int32_t>& out) const;

  // The units of a word into scratch.symbols; with their sizes, as the vocabulary spells the text,
  // into scratch.sizes.
  template <bool kSized>
  void ReadSymbols(std::string_view word, ModelScratch& scratch) const;
  int32_t UnitId(char32_t code) const;
  int32_t AffixedUnitId(char32_t code, bool is_first, bool is_last) const;
  size_t AppendFallback(char32_t code, std::vector<int32_t>& symbols) const;
  bool has_affixes() const {
    return !options_.continuing_prefix.empty() || !options_.end_suffix.empty();
  }
  void MergeShort(ModelScratch& scratch) const;
  void MergeLong(ModelScratch& scratch) const;
  void MergeNodes(ModelScratch& scratch) const;

  const TokenTable& vocabulary_;
  BpeOptions options_;
  TokenTable byte_tokens_;    // byte-level: tokens by the bytes they stand for
  const TokenTable* tokens_;  // how pieces are looked up whole
  MergeTable merges_;
  std::array<int32_t, 256> low_units_;                // ids of single bytes, or of U+0000..U+00FF
  std::unordered_map<char32_t, int32_t> high_units_;  // ids of other single characters
  std::array<int32_t, 256> fallback_;                 // id of <0xHH>, or -1
  bool split_at_words_ = false;  // no merge reaches over the start of a word (U+2581)
  std::unique_ptr<std::atomic<uint8_t>[]> memo_;  // [entry of tokens_] Memo
};

}  // namespace nereid::tokenizer
