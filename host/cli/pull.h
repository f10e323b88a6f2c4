// `nereid pull`: downloads checkpoints of a hub into the local cache. [main thread]
#pragma once

#include <string>
#include <vector>

namespace nereid::cli {

// `args` excludes the command. Returns the exit status of the process.
int RunPull(const std::vector<std::string>& args);

}  // namespace nereid::cli
