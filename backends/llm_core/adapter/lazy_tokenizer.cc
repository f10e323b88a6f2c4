// Loads the tokenizer on demand.
#include "backends/llm_core/adapter/lazy_tokenizer.h"

#include <filesystem>
#include <utility>

#include "backends/tokenizer/lib/vocabulary_fit.h"

namespace nereid::llm {

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

Result<std::string> LazyTokenizer::FaultBeside(const std::string& checkpoint_folder,
                                               int64_t vocab_size) {
  const auto folder_of = [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::weakly_canonical(path, ignored);
  };
  if (folder_of(path_) == folder_of(checkpoint_folder)) return std::string();
  const auto tokenizer = Get();
  if (!tokenizer.ok()) return std::string();
  tokenizer::VocabularyFit fit = tokenizer::CompareVocabulary(**tokenizer, vocab_size);
  if (fit.is_refused) return InvalidArgError("parameter 'tokenizer_dir': ", fit.fault);
  return std::move(fit.fault);
}

}  // namespace nereid::llm
