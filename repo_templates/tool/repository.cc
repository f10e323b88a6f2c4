#include "repo_templates/tool/check.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

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

RepositoryModel ReadModel(const fs::path& path, Findings& findings) {
  RepositoryModel model;
  model.folder.name = path.filename().string();
  model.folder.path = path.string();
  for (core::config::ConfigError& error : core::config::CheckModelConfig(model.folder)) {
    findings.push_back({std::move(error), false});
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

}  // namespace

std::string RepositoryModel::VersionFolder() const {
  if (versions.empty()) return folder.path;
  return (fs::path(folder.path) / std::to_string(versions.back())).string();
}

Repository ReadRepository(const std::string& path, Findings& findings) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const bool is_hidden = entry.path().filename().string().starts_with('.');
    std::error_code ignored;
    if (!is_hidden && entry.is_directory(ignored)) folders.push_back(entry.path());
  }
  if (error) {
    findings.push_back({{path, 0, 0, "", StrCat("cannot be read: ", error.message())}, false});
  } else if (folders.empty()) {
    findings.push_back({{path, 0, 0, "", "holds no model folder"}, false});
  }
  std::sort(folders.begin(), folders.end());
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
