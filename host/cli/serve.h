// `nereid serve`: serves language models from their checkpoints, without a model repository.
// [main thread]
#pragma once

#include <string>
#include <vector>

namespace nereid::cli {

// `args` excludes the command. Returns the exit status of the process.
int RunServe(const std::vector<std::string>& args);

}  // namespace nereid::cli
