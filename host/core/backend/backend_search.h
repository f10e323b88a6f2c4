// Finds the shared library of a model's backend, in the search order of TRITONBACKEND libraries.
// Only tests whether files exist; opens none. [load threads]
#pragma once

#include <string>
#include <vector>

#include "host/core/config/model_config.h"
#include "nereid/status.h"

namespace nereid::core {

struct BackendLocation {
  std::string name;       // after resolving an alias such as "tensorrtllm"
  std::string library;    // path of the .so file
  std::string directory;  // directory of the library, or of model.py: the backend's artifacts
  bool is_python_based = false;  // true: a model.py that the backend "python" runs
};

struct BackendSearch {
  std::string model_dir;
  int64_t version = 0;
  // Searched in this order after the model's directories: the configured directory, then the
  // installed one.
  std::vector<std::string> backend_dirs;
  // True if a GPU is visible that gpu_llm supports: "tensorrtllm" then resolves to gpu_llm.
  bool has_gpu = false;
};

// Returns the installed directory `name` (backends, caches, repoagents) next to the lib/ directory
// of this library; empty if it does not exist.
std::string InstalledDirectory(const char* name);

// INVALID_ARG lists the searched paths. The first existing file is the result, even if it later
// fails to load.
Result<BackendLocation> FindBackend(const ModelConfig& config, const BackendSearch& search);

}  // namespace nereid::core
