// What every model of tokenizer.json does: ids of one piece of text. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/vocabulary/merge_table.h"

namespace nereid::tokenizer {

// Working memory of one Encode call of the tokenizer.
struct ModelScratch {
  struct Node {
    int32_t id;
    int32_t previous, next;  // indices, -1 at the ends
    Merge merge;             // with the next node
    uint32_t size = 0;       // bytes, where they are asked for
  };
  std::vector<int32_t> symbols;
  std::vector<uint32_t> sizes;  // of the symbols, bytes
  std::vector<Merge> merges;
  std::vector<Node> nodes;
  std::vector<uint64_t> heap;
  std::string text;

  struct PathEnd {  // the best way to cut the text before this byte
    double score;
    int32_t id;
    int32_t begin;  // of its last token, -1 where no way was found
  };
  std::vector<PathEnd> paths;

  // Set for good by what only an unknown token could stand for, where the model has none.
  bool lacks_unknown = false;
};

// A token and the bytes of the piece that it stands for.
struct PieceToken {
  int32_t id;
  uint32_t begin, end;
  bool is_spelt_as_text = false;  // an unknown token that keeps the text it stands for
};

class TextModel {
 public:
  virtual ~TextModel() = default;
  // Appends the ids of `piece`: UTF-8, or any bytes where the model stands for bytes.
  virtual void Encode(std::string_view piece, ModelScratch& scratch,
                      std::vector<int32_t>& out) const = 0;
  // The same with where the tokens lie.
  virtual void EncodeSpans(std::string_view piece, ModelScratch& scratch,
                           std::vector<PieceToken>& out) const = 0;
  // Whether it looks tokens up by content in the vocabulary while it encodes.
  virtual bool searches_vocabulary() const { return true; }
};

}  // namespace nereid::tokenizer
