// Parsers for the paths and bodies of SageMaker requests that load and name models, and the search
// for the model in an unpacked folder. [any thread]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::http {

// The part of a path after /models: /<name>/<action>. Either may be empty.
struct ModelsPath {
  std::string_view name;
  std::string_view action;
};

// `path` must begin with "/models"; the views reference it.
ModelsPath ReadModelsPath(std::string_view path);

// The body of a load request.
struct SageMakerLoad {
  std::string name;
  std::string url;  // a folder
};

Result<SageMakerLoad> ReadSageMakerLoad(std::string_view body, size_t max_depth);

// HTTP status of an error. The platform uses it to decide whether to unload another model and
// retry.
int SageMakerStatusOf(const Status& status);

struct ModelFolder {
  std::string repository;
  std::string name;  // of the folder in `repository`
};

// `path` is a model's own folder, a folder with one model, or one with an ensemble and its models.
Result<ModelFolder> FindModelFolder(const std::string& path);

}  // namespace nereid::http
