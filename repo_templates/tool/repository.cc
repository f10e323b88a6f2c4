#include "repo_templates/tool/check.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "host/core/config/repository_layout.h"

namespace nereid::repo {
namespace {

namespace fs = std::filesystem;

// The version number that a folder's name stands for; -1 if it is none.
int64_t VersionOf(const std::string& name) {
  int64_t version = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, version);
  return error == std::errc() && stop == end && (name[0] != '0' || name.size() == 1) ? version : -1;
}

// Completes an error that has no place in a file, because the folder has no config.pbtxt.
core::config::ConfigError WithFolder(core::config::ConfigError error, const fs::path& folder) {
  if (!error.file.empty()) return error;
  const fs::path config = folder / "config.pbtxt";
  std::error_code ignored;
  if (error.key == "backend" && !fs::exists(config, ignored)) {
    return {config.string(), 0, 0, "",
            "is missing, and no file of the folder tells the backend: write it with a line like "
            "backend: \"python\""};
  }
  error.file = folder.string();
  return error;
}

RepositoryModel ReadModel(const fs::path& path, Findings& findings) {
  RepositoryModel model;
  model.folder.name = path.filename().string();
  model.folder.path = path.string();
  for (core::config::ConfigError& error : core::config::CheckModelConfig(model.folder)) {
    findings.push_back({WithFolder(std::move(error), path), false});
  }
  Result<core::ModelConfig> config = core::config::ReadModelConfig(model.folder);
  if (config.ok()) model.config = std::move(config).value();
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const int64_t version = VersionOf(entry.path().filename().string());
    if (version >= 0 && entry.is_directory(error)) model.versions.push_back(version);
  }
  std::sort(model.versions.begin(), model.versions.end());
  return model;
}

// Sorted by name.
std::vector<fs::path> ModelFolders(const std::string& path, std::error_code& error) {
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const bool is_hidden = entry.path().filename().string().starts_with('.');
    std::error_code ignored;
    if (!is_hidden && entry.is_directory(ignored)) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace

std::string RepositoryModel::VersionFolder() const {
  if (versions.empty()) return folder.path;
  return (fs::path(folder.path) / std::to_string(versions.back())).string();
}

std::optional<std::string> PythonFile(const RepositoryModel& model) {
  const core::ModelConfig& config = *model.config;
  if (config.backend != "python" || !config.runtime.empty() || model.versions.empty()) return {};
  const std::string name =
      config.default_model_filename.empty() ? "model.py" : config.default_model_filename;
  return (fs::path(model.VersionFolder()) / name).string();
}

size_t CountModels(const std::string& path) {
  if (!core::CheckRepositoryLayout(path).ok()) return 0;
  std::error_code ignored;
  return ModelFolders(path, ignored).size();
}

Repository ReadRepository(const std::string& path, Findings& findings) {
  std::error_code error;
  const std::vector<fs::path> folders = ModelFolders(path, error);
  if (error) {
    findings.push_back({{path, 0, 0, "", StrCat("cannot be read: ", error.message())}, false});
  } else if (const Status layout = core::CheckRepositoryLayout(path); !layout.ok()) {
    findings.push_back({{"", 0, 0, "", layout.message()}, false});
    return {};
  } else if (folders.empty()) {
    findings.push_back(
        {{path, 0, 0, "", StrCat("holds no model folder: ", core::kExpectedInRepository)}, false});
  }
  Repository repository;
  for (const fs::path& folder : folders) repository.push_back(ReadModel(folder, findings));
  return repository;
}

const RepositoryModel* FindModel(const Repository& repository, const std::string& name) {
  for (const RepositoryModel& model : repository) {
    if (model.folder.name == name) return &model;
  }
  return nullptr;
}

}  // namespace nereid::repo
