#include <filesystem>
#include <map>
#include <set>

#include "backends/tokenizer/lib/vocabulary_fit.h"
#include "repo_templates/tool/check.h"
#include "repo_templates/tool/checkpoint.h"

namespace nereid::repo {
namespace {

namespace fs = std::filesystem;

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

// Compares a model's tokenizer with a vocabulary; `directory` is the checkpoint that has it.
// Returns whether a finding was added.
bool CompareWith(int64_t vocabulary_size, const std::string& directory,
                 const RepositoryModel& model, TokenizerFiles& files, Findings& findings) {
  const std::string path = ResolvePath(model, "tokenizer_dir");
  const tokenizer::Tokenizer* tokenizer = files.Get(path);
  if (tokenizer == nullptr) return false;
  const auto fit = tokenizer::CompareVocabulary(*tokenizer, vocabulary_size);
  if (fit.fault.empty()) return false;
  std::string repair;
  if (fit.is_refused) {
    std::error_code ignored;
    fs::path own(path);
    if (!fs::is_directory(own, ignored)) own = own.parent_path();
    repair = StrCat(fs::equivalent(own, directory, ignored)
                        ? "; put the tokenizer that belongs to config.json into '"
                        : "; give the tokenizer of '",
                    directory, "'");
  }
  Finding finding =
      FindingAtMapEntry(model.folder, "parameters", "tokenizer_dir", StrCat(fit.fault, repair));
  finding.is_warning = !fit.is_refused;
  findings.push_back(std::move(finding));
  return true;
}

// The load of a tokenizer model compares it with the config.json beside it.
std::set<const RepositoryModel*> CheckOwnCheckpoints(const Repository& repository,
                                                     TokenizerFiles& files, Findings& findings) {
  std::set<const RepositoryModel*> unfit;
  for (const RepositoryModel& model : repository) {
    if (!model.config.has_value() || model.config->backend != "tokenizer") continue;
    fs::path folder = ResolvePath(model, "tokenizer_dir");
    std::error_code ignored;
    if (!fs::is_directory(folder, ignored)) folder = folder.parent_path();
    const int64_t size = tokenizer::VocabularySizeOf((folder / "config.json").string());
    if (CompareWith(size, folder.string(), model, files, findings)) unfit.insert(&model);
  }
  return unfit;
}

}  // namespace

void CheckTokenizersFit(const Repository& repository, Findings& findings) {
  TokenizerFiles files;
  const auto unfit = CheckOwnCheckpoints(repository, files, findings);
  for (const RepositoryModel& engine : repository) {
    if (!engine.config.has_value() || !IsLlmEngine(*engine.config)) continue;
    const Result<CheckpointSummary> weights = InspectWeights(ResolvePath(engine, "gpt_model_path"));
    if (!weights.ok()) continue;
    std::set<const RepositoryModel*> models = TokenizersOf(engine, repository);
    if (engine.config->parameters.count("tokenizer_dir") > 0) models.insert(&engine);
    for (const RepositoryModel* model : models) {
      if (unfit.count(model) > 0) continue;
      CompareWith(weights->vocabulary_size, weights->directory, *model, files, findings);
    }
  }
}

}  // namespace nereid::repo
