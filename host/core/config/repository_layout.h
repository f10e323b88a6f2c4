// Recognizes a repository path that points one folder too high or too low, or to a checkpoint.
// Lists directories, never reads files. [any thread]
#pragma once

#include <string>

#include "nereid/status.h"

namespace nereid::core {

// INVALID_ARG says what `path` holds and what to do instead, if it has no model but is the folder
// of a model, a version folder or a checkpoint, or a folder below it has models. Ok for every other
// folder, also for an empty one.
Status CheckRepositoryLayout(const std::string& path);

// Whether the directory has no folder that may be a model. Models may be added later.
bool HasNoModelFolder(const std::string& path);

// What a repository is made of, for messages about one that has nothing.
extern const char* const kExpectedInRepository;

}  // namespace nereid::core
