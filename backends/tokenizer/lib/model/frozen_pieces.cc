// See frozen_pieces.h.
#include "backends/tokenizer/lib/model/frozen_pieces.h"

namespace nereid::tokenizer {

template <typename Between, typename Frozen>
void FrozenPieces::ForEachStretch(std::string_view piece, Between between, Frozen frozen) const {
  size_t done = 0;
  while (const auto match = pieces_.Find(piece, done)) {
    if (done < match->begin) between(done, match->begin);
    frozen(*match);
    done = match->end;
  }
  if (done < piece.size()) between(done, piece.size());
}

void FrozenPieces::Encode(std::string_view piece, ModelScratch& scratch,
                          std::vector<int32_t>& out) const {
  ForEachStretch(
      piece,
      [&](size_t begin, size_t end) {
        model_->Encode(piece.substr(begin, end - begin), scratch, out);
      },
      [&](const TokenTrie::Match& match) { out.push_back(match.value); });
}

void FrozenPieces::EncodeSpans(std::string_view piece, ModelScratch& scratch,
                               std::vector<PieceToken>& out) const {
  ForEachStretch(
      piece,
      [&](size_t begin, size_t end) {
        const size_t first = out.size();
        model_->EncodeSpans(piece.substr(begin, end - begin), scratch, out);
        for (size_t i = first; i < out.size(); ++i) {
          out[i].begin += static_cast<uint32_t>(begin);
          out[i].end += static_cast<uint32_t>(begin);
        }
      },
      [&](const TokenTrie::Match& match) {
        out.push_back(
            {match.value, static_cast<uint32_t>(match.begin), static_cast<uint32_t>(match.end)});
      });
}

}  // namespace nereid::tokenizer
