// tokenizer.json read in one pass: the two members that hold nearly all of its bytes, model.vocab
// and model.merges, go to flat lists; everything else becomes a JSON tree. [any thread]
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::tokenizer {

struct TokenizerDocument {
  struct Text {
    uint32_t offset, size;
  };
  struct VocabEntry {
    Text token;
    uint32_t id;
  };
  struct ScoreEntry {  // of Unigram, whose ids are the places in the list
    Text token;
    double score;
  };
  struct MergeEntry {
    Text left, right;
  };

  std::string_view View(Text text) const { return {arena.data() + text.offset, text.size}; }

  std::string arena;  // the strings of the lists
  bool has_vocab = false, has_merges = false, has_scores = false;
  std::vector<VocabEntry> vocab;   // model.vocab as an object
  std::vector<ScoreEntry> scores;  // model.vocab as an array
  std::vector<MergeEntry> merges;
  std::unique_ptr<nlohmann::json> rest;  // without those two
};

// INVALID_ARG says what is wrong and where.
Result<TokenizerDocument> ParseTokenizerDocument(std::string_view json);

}  // namespace nereid::tokenizer
