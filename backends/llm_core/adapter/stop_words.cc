// Encodes texts and decodes ids to decide how each word is matched.
#include "backends/llm_core/adapter/stop_words.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace nereid::llm {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

bool HasSpecialTokens(const tokenizer::Tokenizer& tokenizer, const TokenIds& word) {
  return std::any_of(word.begin(), word.end(), [&](int32_t id) { return tokenizer.IsSpecial(id); });
}

bool IsEncodedTo(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                 const TokenIds& ids) {
  const Result<TokenIds> encoded = tokenizer.Encode(text, {.add_special_tokens = false});
  return encoded.ok() && *encoded == ids;
}

}  // namespace

std::string TextOfStopWord(const tokenizer::Tokenizer& tokenizer, const TokenIds& word) {
  if (HasSpecialTokens(tokenizer, word)) return "";
  std::string text = tokenizer.DecodeInContext(word);
  if (text.find(kReplacementCharacter) != text.npos) return "";
  std::string alone = tokenizer.Decode(word);
  const bool is_alone =
      alone != text && IsEncodedTo(tokenizer, alone, word) && !IsEncodedTo(tokenizer, text, word);
  return is_alone ? alone : text;
}

Result<StopWords> CombineStopWords(const tokenizer::Tokenizer& tokenizer, std::vector<TokenIds> ids,
                                   std::span<const std::string_view> texts,
                                   const StopWordOptions& options) {
  StopWords words;
  std::set<TokenIds> found_in_text;
  std::vector<TokenIds> matched_as_ids;
  std::vector<std::string> matched_texts;  // parallel
  for (const std::string_view text : texts) {
    if (text.empty()) continue;
    NEREID_ASSIGN_OR_RETURN(
        TokenIds encoded,
        tokenizer.Encode(
            text, {.add_special_tokens = false, .invalid_utf8 = tokenizer::InvalidUtf8::kRefuse}));
    if (options.is_beam_search || HasSpecialTokens(tokenizer, encoded)) {
      if (encoded.empty()) continue;
      matched_as_ids.push_back(std::move(encoded));
      matched_texts.emplace_back(text);
      continue;
    }
    words.texts.emplace_back(text);
    // The clean-up may remove a space of the word from the text. Its ids still find it.
    const bool is_kept =
        options.cleans_up_spaces && tokenizer::Tokenizer::CleanUp(words.texts.back()) != text;
    if (!is_kept) found_in_text.insert(std::move(encoded));
  }
  std::erase_if(ids, [&](const TokenIds& word) { return found_in_text.contains(word); });
  size_t num_bytes = 0;
  for (const TokenIds& word : ids) {
    if (!options.ids_match_in_text || options.is_beam_search) break;
    std::string text = TextOfStopWord(tokenizer, word);
    num_bytes += text.size();
    if (num_bytes > options.max_text_bytes) break;
    if (!text.empty()) words.texts.push_back(std::move(text));
  }
  for (const TokenIds& word : ids)
    words.id_texts.push_back(tokenizer.Decode(word, {.skip_special_tokens = false}));
  words.ids = std::move(ids);
  words.ids.insert(words.ids.end(), std::make_move_iterator(matched_as_ids.begin()),
                   std::make_move_iterator(matched_as_ids.end()));
  words.id_texts.insert(words.id_texts.end(), std::make_move_iterator(matched_texts.begin()),
                        std::make_move_iterator(matched_texts.end()));
  return words;
}

}  // namespace nereid::llm
