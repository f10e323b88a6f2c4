// Stop word and bad word lists in the tensor format of the engine. [any thread]
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/tokenizer.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

// The word lists of several batch rows in one tensor.
struct WordListTensor {
  int64_t width = 0;
  // [rows][2][width]. First the ids of all words, concatenated and padded with 0. Then the end
  // offset of each word in them, padded with -1.
  std::vector<int32_t> values;
};

// `rows[r]` are the words of batch row r. Words that encode to no ids, such as "", are skipped.
Result<WordListTensor> MakeWordLists(const Tokenizer& tokenizer,
                                     const std::vector<std::vector<std::string_view>>& rows);

}  // namespace nereid::tokenizer
