// Looks at names and at the line `platform: "ensemble"`; the core reads the rest.
#include "host/frontend/cloud/model_folder.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

namespace nereid::http {
namespace {

namespace fs = std::filesystem;

// Whether `text` says platform: "ensemble", whatever the spaces.
bool IsEnsemble(const fs::path& model) {
  std::ifstream file(model / "config.pbtxt");
  std::ostringstream content;
  content << file.rdbuf();
  std::string dense;
  for (const char c : content.view()) {
    if (c != ' ' && c != '\t') dense += c;
  }
  return dense.find("platform:\"ensemble\"") != std::string::npos;
}

// What reaches into the machine is no model.
bool IsOfTheSystem(const std::string& path) {
  for (const char* prefix : {"/dev/", "/proc/", "/sys/"}) {
    if (path.starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace

Result<ModelFolder> FindModelFolder(const std::string& path) {
  std::error_code error;
  const fs::path folder = fs::weakly_canonical(path, error);
  if (error || path.empty() || IsOfTheSystem(folder.string() + "/") ||
      !fs::is_directory(folder, error)) {
    return InvalidArgError("'url': expected a folder of a model, got '", path, "'");
  }
  if (fs::exists(folder / "config.pbtxt", error)) {
    return ModelFolder{folder.parent_path().string(), folder.filename().string()};
  }
  std::vector<std::string> models;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (!entry.is_directory(error)) continue;
    const std::string name = entry.path().filename().string();
    if (IsEnsemble(entry.path())) return ModelFolder{folder.string(), name};
    models.push_back(name);
  }
  if (models.size() == 1) return ModelFolder{folder.string(), models.front()};
  return InvalidArgError("'url': expected one model, or an ensemble beside its models, in '", path,
                         "', got ", models.size(), " models");
}

}  // namespace nereid::http
