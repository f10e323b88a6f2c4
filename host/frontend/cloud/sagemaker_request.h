// What SageMaker's platform says when it loads and names models. [any thread]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::http {

// What follows /models in a path: /<name>/<action>, either of which may be empty.
struct ModelsPath {
  std::string_view name;
  std::string_view action;
};

// `path` begins with "/models"; the views point into it.
ModelsPath ReadModelsPath(std::string_view path);

// The body of a load.
struct SageMakerLoad {
  std::string name;
  std::string url;  // a folder
};

Result<SageMakerLoad> ReadSageMakerLoad(std::string_view body, size_t max_depth);

// The HTTP status of an error: by these the platform decides whether to unload something else and
// try again.
int SageMakerStatusOf(const Status& status);

}  // namespace nereid::http
