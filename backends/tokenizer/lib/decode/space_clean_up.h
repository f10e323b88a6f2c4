// The clean-up of decoded text that `clean_up_tokenization_spaces` of tokenizer_config.json
// selects: it removes the spaces before English punctuation and contractions (" ." -> ".", " n't"
// -> "n't"). The rules and their order are those of transformers' clean_up_tokenization.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace nereid::tokenizer {

// Returns the cleaned `text`.
std::string CleanUpSpaces(std::string text);

// Cleans a text that arrives token by token. The concatenated output equals CleanUpSpaces of the
// whole text: the end of the text is held back while further text can still change it.
// [one thread at a time]
class SpaceCleanUp {
 public:
  // Text is held back for at most `max_pending_ids` tokens.
  explicit SpaceCleanUp(size_t max_pending_ids) : max_pending_ids_(max_pending_ids) {}

  // Consumes the text that one more token adds, which may be empty, and appends to `out` the text
  // that can no longer change.
  void PushToken(std::string_view text, std::string& out);
  void Finish(std::string& out);
  bool is_flushed() const { return pending_.empty(); }

 private:
  void Emit(size_t num_bytes, std::string& out);

  const size_t max_pending_ids_;
  size_t num_tokens_ = 0;
  std::string pending_;                // not cleaned yet
  std::vector<size_t> token_of_byte_;  // [pending_.size()]: number of the token that added it
};

}  // namespace nereid::tokenizer
