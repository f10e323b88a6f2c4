// Which file is the backend of a model: the search order of TRITONBACKEND libraries. Looks at files
// alone, opens none. [load threads]
#pragma once

#include <string>
#include <vector>

#include "host/core/config/model_config.h"
#include "nereid/status.h"

namespace nereid {

struct BackendLocation {
  std::string name;              // after the alias was resolved
  std::string library;           // path of the .so
  std::string directory;         // where it lies, or its model.py: the backend's artifacts
  bool is_python_based = false;  // a model.py that the backend "python" runs
};

struct BackendSearch {
  std::string model_dir;
  int64_t version = 0;
  // In this order, after the model's own folders: the given one, then the host's own.
  std::vector<std::string> backend_dirs;
  // Whether there is a GPU that gpu_llm runs on: "tensorrtllm" resolves to it then.
  bool has_gpu = false;
};

// The folder `name` (backends, caches, repoagents) beside this library's own lib/; empty when there
// is none.
std::string OwnDirectory(const char* name);

// INVALID_ARG lists where it looked. A file that exists is the answer, also when it turns out not
// to load.
Result<BackendLocation> FindBackend(const ModelConfig& config, const BackendSearch& search);

}  // namespace nereid
