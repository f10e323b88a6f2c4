#include "backend/backend_search.h"

#include <dlfcn.h>

#include <filesystem>
#include <optional>
#include <system_error>

namespace nereid {
namespace {

namespace fs = std::filesystem;

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::string BackendName(const ModelConfig& config) {
  return config.backend.empty() && config.is_ensemble() ? "ensemble" : config.backend;
}

Result<std::string> LibraryName(const ModelConfig& config, const std::string& backend) {
  const std::string& runtime = config.runtime;
  if (runtime.empty()) return StrCat("libtriton_", backend, ".so");
  if (runtime.find('/') != std::string::npos || runtime == "..") {
    return InvalidArgError("runtime: expected a file name inside the backend's folder, got '",
                           runtime, "'");
  }
  return runtime;
}

std::vector<fs::path> Folders(const BackendSearch& search, const std::string& backend) {
  std::vector<fs::path> folders;
  if (!search.model_dir.empty()) {
    folders.push_back(fs::path(search.model_dir) / std::to_string(search.version));
    folders.emplace_back(search.model_dir);
  }
  for (const std::string& dir : search.backend_dirs) folders.push_back(fs::path(dir) / backend);
  return folders;
}

std::optional<BackendLocation> FindIn(const std::vector<fs::path>& folders,
                                      const std::string& backend, const std::string& library) {
  for (const fs::path& folder : folders) {
    const fs::path path = folder / library;
    if (IsFile(path)) return BackendLocation{backend, path.string(), folder.string()};
  }
  return std::nullopt;
}

// <backend-dir>/<backend>/model.py, which the backend "python" runs.
Result<std::optional<BackendLocation>> FindPythonBased(const BackendSearch& search,
                                                       const std::string& backend) {
  for (const std::string& dir : search.backend_dirs) {
    const fs::path folder = fs::path(dir) / backend;
    if (!IsFile(folder / "model.py")) continue;
    auto python = FindIn(Folders(search, "python"), backend, "libtriton_python.so");
    if (!python) {
      return NotFoundError("backend '", backend, "': '", (folder / "model.py").string(),
                           "' needs the backend 'python', whose libtriton_python.so was not found");
    }
    python->directory = folder.string();
    python->is_python_based = true;
    return python;
  }
  return std::optional<BackendLocation>();
}

// The engines that stand in for the backend of tensorrt_llm repositories.
std::optional<BackendLocation> FindLlmEngine(const BackendSearch& search) {
  for (const std::string engine : {"gpu_llm", "cpu_reference"}) {
    if (engine == "gpu_llm" && !search.has_gpu) continue;
    auto found = FindIn(Folders(search, engine), engine, StrCat("libtriton_", engine, ".so"));
    if (found) return found;
  }
  return std::nullopt;
}

}  // namespace

std::string OwnDirectory(const char* name) {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&OwnDirectory), &info) == 0) return "";
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
  NEREID_ASSIGN_OR_RETURN(const std::string library, LibraryName(config, backend));
  const std::vector<fs::path> folders = Folders(search, backend);
  if (auto found = FindIn(folders, backend, library)) return *found;
  if (backend == "tensorrtllm") {
    if (auto engine = FindLlmEngine(search)) return *engine;
  }
  NEREID_ASSIGN_OR_RETURN(const auto python_based, FindPythonBased(search, backend));
  if (python_based) return *python_based;
  std::string looked;
  for (const fs::path& folder : folders) {
    looked += StrCat(looked.empty() ? "" : ", ", (folder / library).string());
  }
  return NotFoundError("unable to find backend library for backend '", backend,
                       "', try specifying runtime on the model configuration; looked for ", looked);
}

}  // namespace nereid
