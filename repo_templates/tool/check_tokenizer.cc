#include <map>
#include <set>

#include "backends/tokenizer/lib/vocabulary_fit.h"
#include "repo_templates/tool/check.h"
#include "repo_templates/tool/checkpoint.h"

namespace nereid::repo {
namespace {

// Loads each tokenizer once. An unreadable one is reported by the check of its path, or at load.
class TokenizerFiles {
 public:
  const tokenizer::Tokenizer* Get(const std::string& path) {
    const auto [entry, is_new] = loaded_.try_emplace(path);
    if (is_new) {
      if (auto loaded = tokenizer::Tokenizer::Load(path); loaded.ok()) {
        entry->second = std::move(loaded).value();
      }
    }
    return entry->second.get();
  }

 private:
  std::map<std::string, std::shared_ptr<const tokenizer::Tokenizer>> loaded_;
};

// The tokenizer models that an ensemble calls beside the engine.
std::set<const RepositoryModel*> TokenizersOf(const RepositoryModel& engine,
                                              const Repository& repository) {
  std::set<const RepositoryModel*> tokenizers;
  for (const RepositoryModel& model : repository) {
    if (!model.config.has_value() || !model.config->is_ensemble()) continue;
    std::set<const RepositoryModel*> called;
    for (const core::EnsembleStep& step : model.config->ensemble_scheduling->steps) {
      called.insert(FindModel(repository, step.model_name));
    }
    if (called.count(&engine) == 0) continue;
    for (const RepositoryModel* step : called) {
      if (step == nullptr || !step->config.has_value()) continue;
      if (step->config->backend == "tokenizer") tokenizers.insert(step);
    }
  }
  return tokenizers;
}

}  // namespace

void CheckTokenizersFit(const Repository& repository, Findings& findings) {
  TokenizerFiles files;
  for (const RepositoryModel& engine : repository) {
    if (!engine.config.has_value() || !IsLlmEngine(*engine.config)) continue;
    const Result<CheckpointSummary> weights = InspectWeights(ResolvePath(engine, "gpt_model_path"));
    if (!weights.ok()) continue;
    std::set<const RepositoryModel*> models = TokenizersOf(engine, repository);
    if (engine.config->parameters.count("tokenizer_dir") > 0) models.insert(&engine);
    for (const RepositoryModel* model : models) {
      const tokenizer::Tokenizer* tokenizer = files.Get(ResolvePath(*model, "tokenizer_dir"));
      if (tokenizer == nullptr) continue;
      const auto fit = tokenizer::CompareVocabulary(*tokenizer, weights->vocabulary_size);
      if (fit.fault.empty()) continue;
      Finding finding = FindingAtMapEntry(
          model->folder, "parameters", "tokenizer_dir",
          StrCat(fit.fault, fit.is_refused
                                ? StrCat("; give the tokenizer of '", weights->directory, "'")
                                : std::string()));
      finding.is_warning = !fit.is_refused;
      findings.push_back(std::move(finding));
    }
  }
}

}  // namespace nereid::repo
