// Tokenizers defined by byte strings with ranks: two adjacent tokens merge if their concatenation
// has a rank, and the lowest rank merges first. The formats are tiktoken's rank files and Mistral's
// tekken.json. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/load/side_files.h"
#include "backends/tokenizer/lib/load/tokenizer_components.h"
#include "backends/tokenizer/lib/pre_tokenize/added_tokens.h"

namespace nereid::tokenizer {

struct RankTokenizerSpec {
  struct Token {
    uint32_t offset, size;  // in `arena`
    uint32_t rank;
  };
  std::string arena;
  std::vector<Token> tokens;
  uint32_t first_id = 0;  // id of rank 0; the ids before it are special tokens
  std::string pattern;    // matches the pre-tokens, in Rust's dialect; unmatched text is dropped
  bool nfc = false;       // the text is first normalized to NFC
  std::vector<AddedToken> specials;
  std::vector<int32_t> prefix_ids;
  SpecialIds special_ids;
};

// INVALID_ARG names a rank that is duplicate or too large. Ranks may have gaps: no token has such
// an id.
ComponentsResult MakeRankTokenizer(const RankTokenizerSpec& ranks, const SideFileOptions& side);

// Sets pattern and special tokens of the published vocabulary with the same number of tokens.
// UNSUPPORTED if there is none.
Status DescribePublishedVocabulary(RankTokenizerSpec& ranks);

// Loads the bytes of a tiktoken rank file. Pattern and special tokens are those of
// DescribePublishedVocabulary, because the file contains neither.
ComponentsResult LoadTiktoken(std::string_view bytes, const SideFileOptions& side);
bool LooksLikeTiktoken(std::string_view bytes);

// Loads the bytes of a tekken.json.
ComponentsResult LoadTekken(std::string_view json, const SideFileOptions& side);

}  // namespace nereid::tokenizer
