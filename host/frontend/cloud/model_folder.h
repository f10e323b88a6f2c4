// The model within a folder that a platform unpacked. [any thread]
#pragma once

#include <string>

#include "nereid/status.h"

namespace nereid::http {

struct ModelFolder {
  std::string repository;
  std::string name;  // of the folder in `repository`
};

// `path` is a model itself, holds one model, or an ensemble beside the models that it is made of.
Result<ModelFolder> FindModelFolder(const std::string& path);

}  // namespace nereid::http
