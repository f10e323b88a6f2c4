// `nereid top`: the load of a server's models, live. [main thread]
#pragma once

#include <string>
#include <vector>

namespace nereid::cli {

// `args` excludes the command. Returns the exit status of the process.
int RunTop(const std::vector<std::string>& args);

}  // namespace nereid::cli
