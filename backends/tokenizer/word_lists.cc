// See word_lists.h.
#include "backends/tokenizer/word_lists.h"

#include <algorithm>

namespace nereid::tokenizer {
namespace {

struct EncodedWords {
  std::vector<int32_t> ids, ends;
};

Result<EncodedWords> EncodeWords(const Tokenizer& tokenizer,
                                 const std::vector<std::string_view>& words) {
  EncodedWords row;
  for (const std::string_view word : words) {
    NEREID_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                            tokenizer.Encode(word, {.add_special_tokens = false}));
    if (ids.empty()) continue;
    row.ids.insert(row.ids.end(), ids.begin(), ids.end());
    row.ends.push_back(static_cast<int32_t>(row.ids.size()));
  }
  return row;
}

}  // namespace

Result<WordListTensor> MakeWordLists(const Tokenizer& tokenizer,
                                     const std::vector<std::vector<std::string_view>>& rows) {
  std::vector<EncodedWords> encoded;
  size_t width = 1;
  for (const std::vector<std::string_view>& words : rows) {
    NEREID_ASSIGN_OR_RETURN(EncodedWords row, EncodeWords(tokenizer, words));
    width = std::max(width, row.ids.size());
    encoded.push_back(std::move(row));
  }
  WordListTensor tensor;
  tensor.width = static_cast<int64_t>(width);
  tensor.values.reserve(encoded.size() * 2 * width);
  for (EncodedWords& row : encoded) {
    row.ids.resize(width, 0);
    row.ends.resize(width, -1);
    tensor.values.insert(tensor.values.end(), row.ids.begin(), row.ids.end());
    tensor.values.insert(tensor.values.end(), row.ends.begin(), row.ends.end());
  }
  return tensor;
}

}  // namespace nereid::tokenizer
