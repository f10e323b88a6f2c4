// The checkpoint's tokenizer, for what a request says in text. Loaded when the first request needs
// it: most never do. [any thread]
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "backends/tokenizer/lib/tokenizer.h"
#include "nereid/status.h"

namespace nereid::llm_adapter {

class LazyTokenizer {
 public:
  // `path` as Tokenizer::Load takes it. `skip_special_tokens`: what texts are decoded without.
  LazyTokenizer(std::string path, bool skip_special_tokens)
      : skip_special_tokens_(skip_special_tokens), path_(std::move(path)) {}

  // The error stays what it was the first time.
  Result<std::shared_ptr<const tokenizer::Tokenizer>> Get();
  bool skip_special_tokens() const { return skip_special_tokens_; }

 private:
  const bool skip_special_tokens_;
  const std::string path_;
  std::mutex mutex_;  // guards what follows
  bool was_tried_ = false;
  Status error_;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
};

}  // namespace nereid::llm_adapter
