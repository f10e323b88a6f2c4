// Recognizes a repository path that points one folder too high or too low. Lists directories, never
// reads files. [any thread]
#pragma once

#include <string>

#include "nereid/status.h"

namespace nereid::core {

// INVALID_ARG says what `path` holds and which path to pass instead, if it has no model but is the
// folder of a model, or a folder below it has models. Ok for every other folder, also an empty one.
Status CheckLayout(const std::string& path);

// Whether the directory holds nothing.
bool IsEmptyFolder(const std::string& path);

}  // namespace nereid::core
