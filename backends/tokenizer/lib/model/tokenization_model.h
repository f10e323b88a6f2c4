// The interface of all models of tokenizer.json, which encode one pre-token. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/vocabulary/merge_table.h"

namespace nereid::tokenizer {

// Working memory of one Encode call of the tokenizer. [one thread at a time]
struct ModelScratch {
  struct Node {
    int32_t id;
    int32_t previous, next;  // indices, -1 at the ends
    Merge merge;             // with the next node
    uint32_t size = 0;       // in bytes; set by EncodeSpans
  };
  std::vector<int32_t> symbols;
  std::vector<uint32_t> sizes;  // of the symbols, in bytes
  std::vector<Merge> merges;
  std::vector<Node> nodes;
  std::vector<uint64_t> heap;
  std::string text;

  struct ViterbiState {  // the best segmentation of the text before this byte
    double score;
    int32_t id;
    int32_t begin;  // of its last token; -1: there is no segmentation
  };
  std::vector<ViterbiState> viterbi;

  // Set, and never reset, when the text needs an unknown token and the model has none.
  bool lacks_unk_token = false;
};

// A token and the range of the pre-token's bytes that it covers.
struct TokenSpan {
  int32_t id;
  uint32_t begin, end;
  bool keeps_text = false;  // an unknown token whose content is its text
};

class TokenizationModel {
 public:
  virtual ~TokenizationModel() = default;
  // Appends the ids of `pretoken`, which is valid UTF-8, or any bytes for a byte-level model.
  virtual void Encode(std::string_view pretoken, ModelScratch& scratch,
                      std::vector<int32_t>& out) const = 0;
  // The same with the range of each token.
  virtual void EncodeSpans(std::string_view pretoken, ModelScratch& scratch,
                           std::vector<TokenSpan>& out) const = 0;
  // Whether encoding looks up tokens by content in the vocabulary.
  virtual bool searches_vocabulary() const { return true; }
};

}  // namespace nereid::tokenizer
