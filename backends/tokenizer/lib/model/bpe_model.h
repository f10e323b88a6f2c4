// Byte-pair encoding of one pre-token. Immutable after construction, except for an atomic cache of
// which tokens their own text encodes to. [any thread]
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backends/tokenizer/lib/model/tokenization_model.h"
#include "backends/tokenizer/lib/vocabulary/merge_table.h"
#include "backends/tokenizer/lib/vocabulary/token_table.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

struct BpeOptions {
  bool byte_level = false;     // pre-tokens are bytes; the vocabulary has their printable form
  bool byte_fallback = false;  // unknown characters become <0xHH> tokens
  bool fuse_unk = false;       // consecutive unknown characters become one unknown token
  bool ignore_merges =
      false;  // a pre-token that is a token is encoded as that token, without merges
  std::optional<int32_t> unk_id = std::nullopt;
  std::string continuing_prefix = {};  // of all characters but the first, in the vocabulary
  std::string end_suffix = {};         // of the last character, in the vocabulary
};

struct MergeRule {
  int32_t left, right, merged;
  uint32_t rank;
};

class BpeModel final : public TokenizationModel {
 public:
  // `vocabulary` must outlive the model.
  BpeModel(const TokenTable& vocabulary, const std::vector<MergeRule>& rules, BpeOptions options);
  BpeModel(const BpeModel&) = delete;  // tokens_ may point to a member
  BpeModel& operator=(const BpeModel&) = delete;

  // Appends the ids of `pretoken`, which is valid UTF-8, or any bytes with byte_level.
  void Encode(std::string_view pretoken, ModelScratch& scratch,
              std::vector<int32_t>& out) const override;
  void EncodeSpans(std::string_view pretoken, ModelScratch& scratch,
                   std::vector<TokenSpan>& out) const override;
  bool searches_vocabulary() const override { return !options_.byte_level || has_affixes(); }

 private:
  enum Memo : uint8_t { kUnknown, kEncodesToItself, kEncodesToOthers };

  void BuildSymbolIds(const TokenTable& vocabulary);
  bool WordsAreIndependent(const TokenTable& vocabulary, const std::vector<MergeRule>& rules) const;
  void EncodeWord(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const;
  void EncodeByMerges(std::string_view word, ModelScratch& scratch,
                      std::vector<int32_t>& out) const;

  // Writes the initial symbols of a word to scratch.symbols and, if kSized, their sizes in bytes of
  // the vocabulary's form to scratch.sizes.
  template <bool kSized>
  void ReadSymbols(std::string_view word, ModelScratch& scratch) const;
  int32_t SymbolId(char32_t code) const;
  int32_t AffixedSymbolId(char32_t code, bool is_first, bool is_last) const;
  size_t AppendFallback(char32_t code, std::vector<int32_t>& symbols) const;
  bool has_affixes() const {
    return !options_.continuing_prefix.empty() || !options_.end_suffix.empty();
  }
  void MergeShort(ModelScratch& scratch) const;
  void MergeLong(ModelScratch& scratch) const;
  void MergeNodes(ModelScratch& scratch) const;

  const TokenTable& vocabulary_;
  BpeOptions options_;
  TokenTable byte_tokens_;    // byte_level: tokens by the bytes that they represent
  const TokenTable* tokens_;  // table to look up whole pre-tokens
  MergeTable merges_;
  std::array<int32_t, 256> low_symbol_ids_;  // ids of single bytes, or of U+0000..U+00FF
  std::unordered_map<char32_t, int32_t> high_symbol_ids_;  // ids of other single characters
  std::array<int32_t, 256> fallback_;                      // id of <0xHH>, or -1
  bool split_at_words_ = false;                   // no merge crosses the start of a word (U+2581)
  std::unique_ptr<std::atomic<uint8_t>[]> memo_;  // [entry of tokens_] Memo
};

}  // namespace nereid::tokenizer
