// Finds stop strings in the output's text, across token boundaries. Tokens whose text may begin a
// stop string are held back. If a stop string begins within a token, that token is not emitted. The
// part of its text before the stop string is encoded with other ids instead. The same holds for the
// end of a stop string that the output includes.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/llm_core/engine/request.h"
#include "backends/tokenizer/lib/decode/stop_strings.h"
#include "backends/tokenizer/lib/tokenizer.h"

namespace nereid::llm {

// The stop strings of one batch item, shared by its sequences. [any thread]
struct StopStrings {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  tokenizer::DecodeOptions decoding;     // of the text that the client sees
  int32_t min_tokens = 0;                // stop strings do not count before this many tokens
  tokenizer::StopStringMatcher matcher;  // keeps the stop string if the output includes it
  std::vector<std::string> texts;        // that `matcher` searches
};

// The search in one sequence. [engine thread]
class StopStringDetector {
 public:
  explicit StopStringDetector(std::shared_ptr<const StopStrings> texts);

  // Checks `ids`, the whole output of the sequence, after its last token was added.
  llm::StopResult OnToken(std::span<const int32_t> ids);
  // After OnToken returned kStop: the stop string that was found.
  const std::string& found() const { return texts_->texts[*matcher_.match()]; }
  // After OnToken returned kStop: the ids to emit after the visible ones, for the rest of the text:
  // up to the start of the stop string or, if it is included, up to its end. `ids`: the visible
  // ones.
  llm::TokenIds ReplacementIds(std::span<const int32_t> ids) const;

 private:
  void MarkVisible(size_t num_bytes);

  const std::shared_ptr<const StopStrings> texts_;
  tokenizer::IncrementalDecoder decoder_;
  tokenizer::StopStringMatcher matcher_;
  size_t num_visible_ = 0;
  size_t text_size_ = 0;     // bytes, of all tokens
  size_t visible_size_ = 0;  // bytes, of the visible tokens
  // For each token that is not visible: the size of the text up to its end.
  std::deque<size_t> ends_;
  size_t num_incomplete_ = 0;  // number of last tokens whose text is incomplete
  std::string pending_text_;   // text after the visible tokens
};

}  // namespace nereid::llm
