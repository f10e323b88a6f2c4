// Strings that end an output, found in its text wherever token borders lie. Tokens whose text may
// yet begin such a string are held back. Where one begins within a token, that token is not put
// out; what its text has before the string is spelt with other ids instead.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/llm_core/engine/request.h"
#include "backends/tokenizer/lib/decode/stop_strings.h"
#include "backends/tokenizer/lib/tokenizer.h"

namespace nereid::llm_adapter {

// Of a request's row, for each of its sequences. [any thread]
struct StopTexts {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  bool skip_special_tokens = true;
  int32_t min_tokens = 0;  // a string does not count before so many
  tokenizer::StopStringMatcher matcher;
};

// Watches one sequence. [engine thread]
class StopText {
 public:
  explicit StopText(std::shared_ptr<const StopTexts> texts);

  // Judges `ids`, all of the sequence's, after the last of them was added.
  llm::StopVerdict OnToken(std::span<const int32_t> ids);
  // Where OnToken said kStop: the ids that go behind the visible ones, for the text between them
  // and the string. `ids`: the visible ones.
  llm::TokenIds Tail(std::span<const int32_t> ids) const;

 private:
  void Settle(size_t num_bytes);

  const std::shared_ptr<const StopTexts> texts_;
  tokenizer::IncrementalDecoder decoder_;
  tokenizer::StopStringMatcher matcher_;
  size_t num_visible_ = 0;
  size_t text_size_ = 0;     // of all tokens
  size_t visible_size_ = 0;  // of the visible ones
  // By token that is not visible: how much text there was when its own was out. [ids - visible]
  std::deque<size_t> ends_;
  size_t num_open_ = 0;  // of the last of them: their text is not out yet
  std::string held_;     // the text behind the visible tokens
};

}  // namespace nereid::llm_adapter
