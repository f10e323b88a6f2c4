#include "host/core/config/repository_layout.h"

#include <algorithm>
#include <filesystem>
#include <vector>

namespace nereid::core {
namespace {

namespace fs = std::filesystem;

// The subdirectories of `path` that may be models, in the order of their names.
std::vector<fs::path> Folders(const fs::path& path) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored) && it->path().filename().string().front() != '.') {
      folders.push_back(it->path());
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool IsVersionName(const std::string& name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool HasConfig(const fs::path& path) {
  std::error_code ignored;
  return Exists(path / "config.pbtxt") || fs::is_directory(path / "configs", ignored);
}

bool IsModel(const fs::path& path) {
  if (HasConfig(path)) return true;
  const std::vector<fs::path> folders = Folders(path);
  return std::any_of(folders.begin(), folders.end(), [](const fs::path& folder) {
    return IsVersionName(folder.filename().string());
  });
}

// The absolute path without a slash at its end, so that it has a last component.
fs::path Whole(const std::string& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

}  // namespace

const char* const kExpectedInRepository =
    "expected a folder for each model, with config.pbtxt and a version folder such as '1'";

bool HasNoModelFolder(const std::string& path) {
  return Folders(path).empty();
}

Status CheckRepositoryLayout(const std::string& path) {
  const std::vector<fs::path> folders = Folders(path);
  if (std::any_of(folders.begin(), folders.end(), IsModel)) return Status::Ok();
  const fs::path whole = Whole(path), parent = whole.parent_path();
  if (IsModel(path)) {
    return InvalidArgError("model repository '", path, "' is the folder of one model: pass '",
                           parent.string(), "', the folder that contains it");
  }
  if (IsVersionName(whole.filename().string()) && HasConfig(parent)) {
    return InvalidArgError("model repository '", path, "' is a version folder of the model '",
                           parent.filename().string(), "': pass '", parent.parent_path().string(),
                           "', the folder that contains the model's");
  }
  for (const fs::path& folder : folders) {
    const std::vector<fs::path> below = Folders(folder);
    const auto model = std::find_if(below.begin(), below.end(), IsModel);
    if (model == below.end()) continue;
    return InvalidArgError("model repository '", path, "' holds no model, but '", folder.string(),
                           "' does ('", model->filename().string(), "'): pass '", folder.string(),
                           "'");
  }
  if (Exists(whole / "config.json")) {
    return InvalidArgError("model repository '", path, "' is a checkpoint: `nereid serve ", path,
                           "` serves it, `nereid-repo new llm --checkpoint ", path,
                           " --out REPOSITORY` makes a repository of it");
  }
  return Status::Ok();
}

}  // namespace nereid::core
