// `nereid chat`: a conversation with a served model in a terminal. [main thread]
#pragma once

#include <string>
#include <vector>

namespace nereid::cli {

// `args` excludes the command. Returns the exit status of the process.
int RunChat(const std::vector<std::string>& args);

}  // namespace nereid::cli
