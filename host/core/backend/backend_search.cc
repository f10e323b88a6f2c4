#include "host/core/backend/backend_search.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/closest_name.h"
#include "base/concat.h"

namespace nereid::core {
namespace {

namespace fs = std::filesystem;

// File of a Python-based backend, which the backend "python" runs. Triton writes it as `runtime`
// into the configurations of such models.
constexpr char kPythonFile[] = "model.py";

bool IsFile(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// Joins the two with exactly one slash.
std::string Join(const std::string& folder, std::string_view name) {
  return Concat(folder, folder.empty() || folder.back() == '/' ? "" : "/", name);
}

std::string BackendName(const ModelConfig& config) {
  return config.backend.empty() && config.is_ensemble() ? "ensemble" : config.backend;
}

Result<std::string> LibraryName(const ModelConfig& config, const BackendSearch& search,
                                const std::string& backend) {
  const std::string& runtime = config.runtime;
  if (runtime.empty() || config.is_ensemble()) return Concat("libtriton_", backend, ".so");
  if (runtime.find('/') != std::string::npos || runtime == "..") {
    const std::string folder =
        search.backend_dirs.empty() ? backend : Join(search.backend_dirs.front(), backend);
    return InvalidArgError("runtime: backend library name '", runtime,
                           "' escapes backend directory '", folder, "'");
  }
  return runtime;
}

std::vector<std::string> Folders(const BackendSearch& search, const std::string& backend) {
  std::vector<std::string> folders;
  if (!search.model_dir.empty()) {
    folders.push_back(Join(search.model_dir, std::to_string(search.version)));
    folders.push_back(search.model_dir);
  }
  for (const std::string& dir : search.backend_dirs) folders.push_back(Join(dir, backend));
  return folders;
}

std::optional<BackendLocation> FindIn(const std::vector<std::string>& folders,
                                      const std::string& backend, const std::string& library) {
  for (const std::string& folder : folders) {
    std::string path = Join(folder, library);
    if (IsFile(path)) return BackendLocation{backend, std::move(path), folder};
  }
  return std::nullopt;
}

// Finds <backend-dir>/<backend>/model.py, which the backend "python" runs.
Result<std::optional<BackendLocation>> FindPythonBased(const BackendSearch& search,
                                                       const std::string& backend) {
  for (const std::string& dir : search.backend_dirs) {
    const std::string folder = Join(dir, backend);
    const std::string model = Join(folder, kPythonFile);
    if (!IsFile(model)) continue;
    auto python = FindIn(Folders(search, "python"), backend, "libtriton_python.so");
    if (!python) {
      return NotFoundError("backend '", backend, "': '", model,
                           "' needs the backend 'python', whose libtriton_python.so was not found");
    }
    python->directory = folder;
    python->is_python_based = true;
    return python;
  }
  return std::optional<BackendLocation>();
}

// Finds the LLM engine that replaces the backend of tensorrt_llm repositories.
std::optional<BackendLocation> FindLlmEngine(const BackendSearch& search) {
  for (const std::string engine : {"gpu_llm", "cpu_reference"}) {
    if (engine == "gpu_llm" && !search.has_gpu) continue;
    auto found = FindIn(Folders(search, engine), engine, StrCat("libtriton_", engine, ".so"));
    if (found) return found;
  }
  return std::nullopt;
}

// " (did you mean 'X'?)" for the installed backend whose name is closest, or an empty text.
std::string Suggestion(const BackendSearch& search, const std::string& backend) {
  std::vector<std::string> names{"tensorrtllm"};
  for (const std::string& dir : search.backend_dirs) {
    std::error_code error;
    for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
      names.push_back(it->path().filename().string());
    }
  }
  // A name that is known has a folder without its library.
  const bool is_known = std::find(names.begin(), names.end(), backend) != names.end();
  return is_known ? std::string() : DidYouMean(backend, names);
}

}  // namespace

std::string InstalledDirectory(const char* name) {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&InstalledDirectory), &info) == 0) return "";
  std::error_code error;
  const fs::path library = fs::canonical(info.dli_fname, error);
  if (error) return "";
  const fs::path folder = library.parent_path().parent_path() / name;
  return fs::is_directory(folder, error) ? folder.string() : "";
}

Result<BackendLocation> FindBackend(const ModelConfig& config, const BackendSearch& search) {
  const std::string backend = BackendName(config);
  if (backend.empty()) {
    return InvalidArgError("model '", config.name, "': neither backend nor platform is set");
  }
  if (backend.find('/') != std::string::npos) {
    return InvalidArgError("backend: expected a name, got '", backend, "'");
  }
  NEREID_ASSIGN_OR_RETURN(const std::string library, LibraryName(config, search, backend));
  const std::vector<std::string> folders = Folders(search, backend);
  if (library != kPythonFile) {
    if (auto found = FindIn(folders, backend, library)) return *found;
  }
  if (backend == "tensorrtllm") {
    if (auto engine = FindLlmEngine(search)) return *engine;
  }
  NEREID_ASSIGN_OR_RETURN(const auto python_based, FindPythonBased(search, backend));
  if (python_based) return *python_based;
  std::string searched;
  for (const std::string& folder : folders) {
    searched += Concat(searched.empty() ? "" : ", ", Join(folder, library));
  }
  if (library == config.runtime) {
    return InvalidArgError("unable to find backend library '", library, "' for model '",
                           config.name, "', searched: ", searched);
  }
  return InvalidArgError("unable to find backend library for backend '", backend,
                         "', try specifying runtime on the model configuration. Looked for ",
                         searched, Suggestion(search, backend));
}

}  // namespace nereid::core
