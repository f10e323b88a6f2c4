// A model with pieces that are tokens wherever they stand in the text and that nothing merges with:
// sentencepiece's user-defined pieces under BPE. [any thread]
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/model/text_model.h"
#include "backends/tokenizer/lib/vocabulary/token_trie.h"

namespace nereid::tokenizer {

class FrozenPieces final : public TextModel {
 public:
  // `pieces` finds ids; `model` encodes what lies between.
  FrozenPieces(TokenTrie pieces, std::unique_ptr<const TextModel> model)
      : pieces_(std::move(pieces)), model_(std::move(model)) {}

  void Encode(std::string_view piece, ModelScratch& scratch,
              std::vector<int32_t>& out) const override;
  void EncodeSpans(std::string_view piece, ModelScratch& scratch,
                   std::vector<PieceToken>& out) const override;
  bool searches_vocabulary() const override { return model_->searches_vocabulary(); }

 private:
  // Calls `between(begin, end)` and `frozen(match)` for the stretches of `piece`, in order.
  template <typename Between, typename Frozen>
  void ForEachStretch(std::string_view piece, Between between, Frozen frozen) const;

  TokenTrie pieces_;
  std::unique_ptr<const TextModel> model_;
};

}  // namespace nereid::tokenizer
