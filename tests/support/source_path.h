// Where the sources are, for tests that read files of the repository.
#pragma once

#include <string>

namespace nereid {

// The absolute path of a file or folder of the repository. `name`: relative to the top level.
std::string SourcePath(const std::string& name);

}  // namespace nereid
