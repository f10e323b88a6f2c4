// Lists of words as the engine takes them. [any thread]
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/tokenizer.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

// Word lists of several rows in one tensor.
struct WordListTensor {
  int64_t width = 0;
  // [rows][2][width]: the ids of all words one behind the other, padded with 0, then the end of
  // each word in them, padded with -1.
  std::vector<int32_t> values;
};

// `rows[r]` are the words of row r; a word that has no ids, such as "", counts for nothing.
Result<WordListTensor> MakeWordLists(const Tokenizer& tokenizer,
                                     const std::vector<std::vector<std::string_view>>& rows);

}  // namespace nereid::tokenizer
