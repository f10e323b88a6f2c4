// See decode_piece.h.
#include "backends/tokenizer/decode_piece.h"

namespace nereid::tokenizer {

std::string DecodePiece(const Tokenizer& tokenizer, bool skip_special_tokens,
                        std::span<const int32_t> prior_ids, std::span<const int32_t> ids,
                        bool is_final) {
  if (prior_ids.empty() && is_final) return tokenizer.Decode(ids, skip_special_tokens);
  IncrementalDecoder decoder(tokenizer, skip_special_tokens, kMaxHeldIds);
  std::string text;
  decoder.Replay(prior_ids);
  decoder.Push(ids, text);
  if (is_final) decoder.Finish(text);
  return text;
}

}  // namespace nereid::tokenizer
