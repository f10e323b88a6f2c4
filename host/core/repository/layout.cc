#include "host/core/repository/layout.h"

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

bool IsVersionName(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool IsModel(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path / "config.pbtxt", ignored) || fs::is_directory(path / "configs", ignored)) {
    return true;
  }
  const std::vector<fs::path> folders = Folders(path);
  return std::any_of(folders.begin(), folders.end(), [](const fs::path& folder) {
    return IsVersionName(folder.filename().string());
  });
}

}  // namespace

bool IsEmptyFolder(const std::string& path) {
  std::error_code error;
  const bool is_empty = fs::is_empty(path, error);
  return is_empty && !error;
}

Status CheckLayout(const std::string& path) {
  const std::vector<fs::path> folders = Folders(path);
  if (std::any_of(folders.begin(), folders.end(), IsModel)) return Status::Ok();
  if (IsModel(path)) {
    const fs::path whole = fs::absolute(path).lexically_normal();
    const fs::path parent =
        whole.has_filename() ? whole.parent_path() : whole.parent_path().parent_path();
    return InvalidArgError("model repository '", path, "' is the folder of one model: pass '",
                           parent.string(), "', the folder that contains it");
  }
  for (const fs::path& folder : folders) {
    const std::vector<fs::path> below = Folders(folder);
    const auto model = std::find_if(below.begin(), below.end(), IsModel);
    if (model == below.end()) continue;
    return InvalidArgError("model repository '", path, "' holds no model, but '", folder.string(),
                           "' does ('", model->filename().string(), "'): pass '", folder.string(),
                           "'");
  }
  return Status::Ok();
}

}  // namespace nereid::core
