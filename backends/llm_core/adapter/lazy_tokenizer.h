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
  Result<std::shared_ptr<const tokenizer::Tokenizer>> Get() {
    const std::lock_guard lock(mutex_);
    if (!was_tried_) {
      was_tried_ = true;
      Result<std::shared_ptr<const tokenizer::Tokenizer>> loaded = tokenizer::LoadShared(path_);
      if (loaded.ok()) {
        tokenizer_ = std::move(*loaded);
      } else {
        error_ = std::move(loaded).status();
      }
    }
    NEREID_RETURN_IF_ERROR(error_);
    return tokenizer_;
  }
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
