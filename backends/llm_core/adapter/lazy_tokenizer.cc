// See lazy_tokenizer.h.
#include "backends/llm_core/adapter/lazy_tokenizer.h"

#include "backends/tokenizer/lib/shared_tokenizer.h"

namespace nereid::llm_adapter {

Result<std::shared_ptr<const tokenizer::Tokenizer>> LazyTokenizer::Get() {
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

}  // namespace nereid::llm_adapter
