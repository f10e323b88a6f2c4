// Parses tokenizer.json in one pass. model.vocab and model.merges, which make up nearly all of the
// file, become flat lists; everything else becomes a JSON tree. [any thread]
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
  struct ScoreEntry {  // of a Unigram model; the id is the index in the list
    Text token;
    double score;
  };
  struct MergeEntry {
    Text left, right;
  };

  std::string_view View(Text text) const { return {arena.data() + text.offset, text.size}; }

  std::string arena;  // the characters of all Text values
  bool has_vocab = false, has_merges = false, has_scores = false;
  std::vector<VocabEntry> vocab;   // model.vocab as an object
  std::vector<ScoreEntry> scores;  // model.vocab as an array
  std::vector<MergeEntry> merges;
  std::unique_ptr<nlohmann::json> rest;  // the document without model.vocab and model.merges
};

// INVALID_ARG gives the fault and its position.
Result<TokenizerDocument> ParseTokenizerDocument(std::string_view json);

}  // namespace nereid::tokenizer
