// For tests that read files of the repository.
#pragma once

#include <string>

namespace nereid {

// Returns the absolute path of a file or folder of the repository. `name` is its path relative to
// the top level.
std::string SourcePath(const std::string& name);

}  // namespace nereid
