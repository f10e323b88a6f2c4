// `nereid-repo new qaic-style`: a repository in the manner of the LLM samples of Qualcomm's Cloud
// AI SDK, served by the engine instead of their accelerator. The flags are those of their
// generate_llm_model_repo.py.
#pragma once

#include <string>
#include <vector>

#include "nereid/status.h"

namespace nereid::repo {

struct NewQaicOptions {
  std::string model_name;  // of the model that clients call
  std::string checkpoint;  // --hf_model_name: a folder
  std::string model_type = "kv_cache";
  std::string compile_config;  // a file, or empty
  std::string out;             // absent or empty so far
  std::string backend = "auto";
  bool decoupled = false;
  bool has_backend_dir = false;  // --python_backend_dir was given
  std::string templates;         // the folder of template files: llm/ and qaic/
};

// `notes` gets what has no meaning here, by name. On error nothing of `out` is left behind.
Status NewQaic(const NewQaicOptions& options, std::vector<std::string>& notes);

}  // namespace nereid::repo
