// A small file as a whole. [any thread]
#pragma once

#include <string>

#include "nereid/status.h"

namespace nereid {

// NOT_FOUND when it cannot be opened, INTERNAL when it cannot be read, as a folder cannot.
Result<std::string> ReadFile(const std::string& path);

}  // namespace nereid
