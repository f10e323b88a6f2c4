#include "backends/tokenizer/lib/vocabulary_fit.h"

#include <nlohmann/json.hpp>

#include "base/file_content.h"
#include "base/json_reader.h"

namespace nereid::tokenizer {

VocabularyFit CompareVocabulary(const Tokenizer& tokenizer, int64_t model_vocab_size) {
  VocabularyFit fit;
  const int32_t size = tokenizer.model_vocab_size();
  if (model_vocab_size <= 0 || size <= model_vocab_size) return fit;
  int64_t num_ordinary = 0;
  int64_t num_special = 0;
  for (auto id = static_cast<int32_t>(model_vocab_size); id < size; ++id) {
    if (!tokenizer.IdToToken(id).has_value()) continue;
    ++(tokenizer.IsSpecial(id) ? num_special : num_ordinary);
  }
  if (num_ordinary + num_special == 0) return fit;
  fit.is_refused = num_ordinary > 0;
  fit.fault = StrCat("the tokenizer has ids up to ", size - 1, ", the checkpoint's vocab_size is ",
                     model_vocab_size, ": ", num_ordinary, " ordinary and ", num_special,
                     " special tokens have no embedding");
  return fit;
}

int64_t VocabularySizeOf(const std::string& config_path) {
  const Result<std::string> text = ReadFile(config_path, kMaxTextFileBytes);
  if (!text.ok()) return 0;
  const auto config = ReadJsonObject<nlohmann::json>(*text, config_path);
  if (!config.ok()) return 0;
  const auto nested = config->find("text_config");
  const nlohmann::json& model = nested != config->end() && nested->is_object() ? *nested : *config;
  const auto size = model.find("vocab_size");
  return size != model.end() && size->is_number_integer() ? size->get<int64_t>() : 0;
}

}  // namespace nereid::tokenizer
