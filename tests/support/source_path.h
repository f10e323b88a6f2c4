// Tells tests where the files of the repository are.
#pragma once

#include <string>

namespace nereid {

// Returns the absolute path of a file or folder of the repository. `name` is its path relative to
// the top level.
std::string SourcePath(const std::string& name);

}  // namespace nereid
