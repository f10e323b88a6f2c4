// Decides which stop words of a batch item are matched as ids and which in the output's text.
// [any thread]
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/llm_core/sampling/sampling_params.h"
#include "backends/tokenizer/lib/tokenizer.h"
#include "nereid/status.h"

namespace nereid::llm {

struct StopWords {
  std::vector<TokenIds> ids;
  std::vector<std::string> id_texts;  // parallel to `ids`: the text by which a word is reported
  std::vector<std::string> texts;
};

struct StopWordOptions {
  bool ids_match_in_text = true;  // words given as ids are also searched as the text they stand for
  bool is_beam_search = false;    // the text of a beam is not known: all words are matched as ids
  bool cleans_up_spaces = false;  // of the text that is searched
  size_t max_text_bytes = 65536;  // of the texts of words given as ids; further ones are left out
};

// Returns the text that a word given as ids stands for: the one that the tokenizer encodes to these
// ids. Where texts with and without a leading space have the same ids, and where no text has them,
// it is the text that the ids add to an earlier text, with the space. Empty for words with special
// tokens or incomplete characters.
std::string TextOfStopWord(const tokenizer::Tokenizer& tokenizer, const TokenIds& word);

// Combines words given as ids with words given as text. A text is searched as it is written. Its
// ids among `ids` are dropped, because under some tokenizers they are also the ids of other texts.
// Texts with special tokens are matched as ids. INVALID_ARG if a text is not UTF-8.
Result<StopWords> CombineStopWords(const tokenizer::Tokenizer& tokenizer, std::vector<TokenIds> ids,
                                   std::span<const std::string_view> texts,
                                   const StopWordOptions& options);

}  // namespace nereid::llm
