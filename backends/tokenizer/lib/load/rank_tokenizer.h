// Tokenizers that are lists of byte strings in the order of their making: any two neighbours that
// together are in the list merge, the lowest rank first. Such are tiktoken's files and Mistral's
// tekken.json. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/load/side_files.h"
#include "backends/tokenizer/lib/load/tokenizer_parts.h"
#include "backends/tokenizer/lib/split/added_tokens.h"

namespace nereid::tokenizer {

struct RankTokenizer {
  struct Token {
    uint32_t offset, size;  // in `arena`
    uint32_t rank;
  };
  std::string arena;
  std::vector<Token> tokens;
  uint32_t first_id = 0;  // id of rank 0
  std::string pattern;    // gives the text's pieces, in Rust's dialect; what it leaves out is none
  bool nfc = false;       // the text is brought into NFC first
  std::vector<AddedToken> specials;
  std::vector<int32_t> prefix_ids;
  SpecialIds special_ids;
};

// INVALID_ARG names a rank that is double or too large. A rank that no token has is none's id.
PartsResult MakeRankTokenizer(const RankTokenizer& ranks, const SideOptions& side);

// Pattern and special tokens of the published vocabulary with as many tokens. UNSUPPORTED where
// none has.
Status DescribePublished(RankTokenizer& ranks);

// From the bytes of a tiktoken rank file. The file holds no pattern and no special tokens: they are
// those of the published vocabulary with as many tokens.
PartsResult LoadTiktoken(std::string_view bytes, const SideOptions& side);
bool LooksLikeTiktoken(std::string_view bytes);

// From the bytes of a tekken.json.
PartsResult LoadTekken(std::string_view json, const SideOptions& side);

}  // namespace nereid::tokenizer
