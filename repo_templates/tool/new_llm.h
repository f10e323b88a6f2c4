// `nereid-repo new llm`: a checkpoint directory becomes a model repository that loads as it is.
#pragma once

#include <string>

#include "nereid/status.h"

namespace nereid::repo {

struct NewLlmOptions {
  enum class Files { kReference, kCopy, kLink };

  std::string checkpoint;
  std::string out;               // absent or empty so far
  std::string backend = "auto";  // auto, gpu_llm, cpu_reference
  bool decoupled = false;
  int max_batch_size = 64;
  int max_queue_size = 1024;
  Files files = Files::kReference;  // the repository names the checkpoint, holds it, or links to it
  std::string templates;            // the folder of template files
};

// On error nothing of `out` is left behind.
Status NewLlm(const NewLlmOptions& options);

}  // namespace nereid::repo
