#include "repo_templates/tool/check.h"

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "base/closest_name.h"

namespace nereid::repo {
namespace {

namespace fs = std::filesystem;

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

void CheckVersions(const RepositoryModel& model, Findings& findings) {
  if (model.versions.empty()) {
    findings.push_back({{model.folder.path, 0, 0, "",
                         StrCat("has no version folder: expected for example '",
                                (fs::path(model.folder.path) / "1").string(), "'")},
                        false});
    return;
  }
  if (model.config->version_policy.kind != core::VersionPolicy::Kind::kSpecific) return;
  for (const int64_t version : model.config->version_policy.specific) {
    if (std::find(model.versions.begin(), model.versions.end(), version) != model.versions.end()) {
      continue;
    }
    findings.push_back(
        FindingAt(model.folder, "version_policy",
                  StrCat("version ", version, " is to be served, but '",
                         (fs::path(model.folder.path) / std::to_string(version)).string(),
                         "' does not exist")));
  }
}

// The names of the backend folders in all backend directories, and the name that the host itself
// resolves.
std::vector<std::string> KnownBackends(const CheckOptions& options) {
  std::vector<std::string> names{"tensorrtllm"};
  for (const std::string& directory : options.backend_directories) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// The closest known name, or all of them. A known name means that its library is missing.
std::string SuggestBackend(const std::string& backend, const CheckOptions& options) {
  const std::vector<std::string> known = KnownBackends(options);
  if (std::find(known.begin(), known.end(), backend) != known.end()) return "";
  std::string suggestion = DidYouMean(backend, known);
  if (!suggestion.empty()) return suggestion;
  for (const std::string& name : known) {
    suggestion += StrCat(suggestion.empty() ? "; known: " : ", ", name);
  }
  return suggestion + "; --backend-directory names the folder of others";
}

bool HasBackend(const RepositoryModel& model, const CheckOptions& options,
                const std::string& backend) {
  const std::string library = StrCat("libtriton_", backend, ".so");
  if (Exists(fs::path(model.VersionFolder()) / library)) return true;
  if (Exists(fs::path(model.folder.path) / library)) return true;
  return std::any_of(options.backend_directories.begin(), options.backend_directories.end(),
                     [&](const std::string& directory) {
                       const fs::path folder = fs::path(directory) / backend;
                       return Exists(folder / library) || Exists(folder / "model.py");
                     });
}

void CheckBackend(const RepositoryModel& model, const CheckOptions& options, Findings& findings) {
  const core::ModelConfig& config = *model.config;
  if (config.is_ensemble()) return;
  if (config.backend.empty()) {
    findings.push_back(
        FindingAt(model.folder, "backend", "neither 'backend' nor 'platform' is set"));
    return;
  }
  if (const std::optional<std::string> file = PythonFile(model); file && !Exists(*file)) {
    findings.push_back({{*file, 0, 0, "", "is missing"}, false});
  }
  if (options.backend_directories.empty() || !config.runtime.empty()) return;
  std::vector<std::string> candidates{config.backend};
  // The host resolves this name to one of its own engines.
  if (config.backend == "tensorrtllm") candidates = {"tensorrtllm", "gpu_llm", "cpu_reference"};
  for (const std::string& candidate : candidates) {
    if (HasBackend(model, options, candidate)) return;
  }
  std::string where;
  for (const std::string& directory : options.backend_directories) {
    where += StrCat(where.empty() ? "" : ", ", "'", directory, "'");
  }
  findings.push_back(FindingAt(model.folder, "backend",
                               StrCat("backend '", config.backend, "': no libtriton_",
                                      config.backend, ".so in the model's folders nor in ", where,
                                      SuggestBackend(config.backend, options))));
}

}  // namespace

Findings CheckRepository(const std::string& path, const CheckOptions& options) {
  Findings findings;
  const Repository repository = ReadRepository(path, findings);
  for (const RepositoryModel& model : repository) {
    if (!model.config.has_value()) continue;
    CheckVersions(model, findings);
    CheckBackend(model, options, findings);
    if (options.gpus.has_value()) CheckGpus(model, *options.gpus, findings);
    if (model.config->is_ensemble()) {
      CheckEnsemble(model, repository, findings);
    } else {
      CheckLlmModel(model, findings);
      CheckBlsModel(model, repository, findings);
    }
  }
  CheckEnsembleCycles(repository, findings);
  CheckTokenizersFit(repository, findings);
  if (options.runs_interpreters) CheckPythonModels(repository, findings);
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    return std::tie(a.error.file, a.error.line, a.error.column) <
           std::tie(b.error.file, b.error.line, b.error.column);
  });
  return findings;
}

}  // namespace nereid::repo
