// See tokenizer_parts.h.
#include "backends/tokenizer/lib/load/tokenizer_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "backends/tokenizer/lib/text/byte_level.h"

namespace nereid::tokenizer {

std::optional<int32_t> TokenizerParts::IdOfToken(std::string_view token,
                                                 bool with_role_only) const {
  for (const AddedToken& candidate : added.tokens()) {
    if (candidate.content != token) continue;
    if (candidate.is_role_only && !with_role_only) return std::nullopt;
    return candidate.id;
  }
  return vocabulary.Find(token);
}

Status FinishParts(const nlohmann::json& decoder_spec, TokenizerParts& parts) {
  NEREID_ASSIGN_OR_RETURN(DecoderSteps steps, DecoderSteps::Make(decoder_spec));
  FinishParts(std::move(steps), parts);
  return {};
}

void FinishParts(DecoderSteps decoder_steps, TokenizerParts& parts) {
  std::unordered_map<int32_t, size_t> added_index;
  parts.model_vocab_size = static_cast<int32_t>(parts.vocabulary.id_end());
  auto id_end = parts.model_vocab_size;
  for (size_t i = 0; i < parts.added.tokens().size(); ++i) {
    const AddedToken& token = parts.added.tokens()[i];
    added_index[token.id] = i;
    id_end = std::max(id_end, token.id + 1);
    if (!token.is_role_only) {
      parts.model_vocab_size = std::max(parts.model_vocab_size, token.id + 1);
    }
  }
  parts.vocab_size = id_end;
  std::string printable;  // of the last token asked for
  const auto token_of_id = [&](int32_t id) -> std::optional<TokenDecoder::Token> {
    std::optional<std::string_view> text = parts.vocabulary.OfId(id);
    const auto it = added_index.find(id);
    if (parts.added_are_apart && it != added_index.end()) {
      const AddedToken& token = parts.added.tokens()[it->second];
      printable = PrintableForm(token.content);
      return TokenDecoder::Token{printable, token.special};
    }
    if (parts.added_are_apart && text) return TokenDecoder::Token{*text, false};
    if (it != added_index.end()) {
      text = parts.added.DecodedForm(it->second);
    }
    if (!text) return std::nullopt;
    return TokenDecoder::Token{*text, parts.added.IsSpecialContent(*text)};
  };
  parts.decoder = TokenDecoder::Make(std::move(decoder_steps), id_end, token_of_id);
  if (!parts.model->searches_vocabulary()) parts.vocabulary.DropContentIndex();
}

}  // namespace nereid::tokenizer
