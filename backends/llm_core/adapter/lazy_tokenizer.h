// The checkpoint's tokenizer, for requests that contain text. It is loaded when the first request
// needs it, because most requests never do. [any thread]
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "backends/tokenizer/lib/shared_tokenizer.h"
#include "backends/tokenizer/lib/tokenizer.h"
#include "nereid/status.h"

namespace nereid::llm {

class LazyTokenizer {
 public:
  // `path` as for Tokenizer::Load. The other arguments apply to decoding. `cleans_up_spaces`
  // overrides what the tokenizer's files say.
  LazyTokenizer(std::string path, bool skip_special_tokens, std::optional<bool> cleans_up_spaces)
      : skip_special_tokens_(skip_special_tokens),
        cleans_up_spaces_(cleans_up_spaces),
        path_(std::move(path)) {}

  // Loads the tokenizer in the first call. An error is returned again by every later call.
  Result<std::shared_ptr<const tokenizer::Tokenizer>> Get();
  // What is wrong with the tokenizer for a model of `vocab_size` tokens; empty: nothing. An error
  // if the model cannot be used with it. The tokenizer of the checkpoint itself is not loaded: the
  // tokenizer's models check it. An unreadable one is reported to the requests that need it.
  Result<std::string> FaultBeside(const std::string& checkpoint_folder, int64_t vocab_size);
  // How the client's text is decoded with `tokenizer`, the one that Get returned.
  tokenizer::DecodeOptions decode_options(const tokenizer::Tokenizer& tokenizer) const {
    return {.skip_special_tokens = skip_special_tokens_,
            .cleans_up_spaces = cleans_up_spaces_.value_or(tokenizer.cleans_up_spaces())};
  }

 private:
  const bool skip_special_tokens_;
  const std::optional<bool> cleans_up_spaces_;
  const std::string path_;
  std::mutex mutex_;  // guards the members below
  bool was_tried_ = false;
  Status error_;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
};

}  // namespace nereid::llm
