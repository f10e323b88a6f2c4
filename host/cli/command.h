// The sub-commands of the executable: `nereid serve`, `nereid chat` and so on. Without one, the
// executable takes the flags of a server. [main thread]
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "nereid/status.h"

namespace nereid::cli {

// Runs the command that args[0] names with the other elements of `args`, and returns the exit
// status of the process: 0 for success, 1 for a failure, 2 for a command line that cannot be
// understood.
int RunCommand(const std::vector<std::string>& args);

// Prints why `nereid <command>` fails, and returns `exit_status`.
inline int FailCommand(const char* command, const Status& status, int exit_status) {
  std::fprintf(stderr, "nereid %s: %s\n", command, status.message().c_str());
  return exit_status;
}

// The part of the help text that lists the commands.
std::string CommandsText();

}  // namespace nereid::cli
