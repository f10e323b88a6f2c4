// See tokenizer_components.h.
#include "backends/tokenizer/lib/load/tokenizer_components.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "backends/tokenizer/lib/text/byte_encoding.h"

namespace nereid::tokenizer {

std::optional<int32_t> TokenizerComponents::IdOfToken(std::string_view token,
                                                      bool include_role_only) const {
  for (const AddedToken& candidate : added.tokens()) {
    if (candidate.content != token) continue;
    if (candidate.is_role_only && !include_role_only) return std::nullopt;
    return candidate.id;
  }
  return vocabulary.Find(token);
}

Status FinalizeComponents(const nlohmann::json& decoder_spec, TokenizerComponents& components) {
  NEREID_ASSIGN_OR_RETURN(DecoderSteps steps, DecoderSteps::Make(decoder_spec));
  FinalizeComponents(std::move(steps), components);
  return {};
}

void FinalizeComponents(DecoderSteps decoder_steps, TokenizerComponents& components) {
  std::unordered_map<int32_t, size_t> added_index;
  components.model_vocab_size = static_cast<int32_t>(components.vocabulary.id_end());
  auto id_end = components.model_vocab_size;
  for (size_t i = 0; i < components.added.tokens().size(); ++i) {
    const AddedToken& token = components.added.tokens()[i];
    added_index[token.id] = i;
    id_end = std::max(id_end, token.id + 1);
    if (!token.is_role_only) {
      components.model_vocab_size = std::max(components.model_vocab_size, token.id + 1);
    }
  }
  components.vocab_size = id_end;
  std::string printable;  // backs the most recently returned view
  const auto token_of_id = [&](int32_t id) -> std::optional<TokenDecoder::Token> {
    std::optional<std::string_view> text = components.vocabulary.OfId(id);
    const auto it = added_index.find(id);
    if (components.has_separate_added_ids && it != added_index.end()) {
      const AddedToken& token = components.added.tokens()[it->second];
      printable = PrintableForm(token.content);
      return TokenDecoder::Token{printable, token.special};
    }
    if (components.has_separate_added_ids && text) return TokenDecoder::Token{*text, false};
    if (it != added_index.end()) {
      text = components.added.DecodedForm(it->second);
    }
    if (!text) return std::nullopt;
    return TokenDecoder::Token{*text, components.added.IsSpecialContent(*text)};
  };
  components.decoder = TokenDecoder::Make(std::move(decoder_steps), id_end, token_of_id);
  if (!components.model->searches_vocabulary()) components.vocabulary.DropContentIndex();
}

}  // namespace nereid::tokenizer
