#include "host/cli/command.h"

#include <algorithm>
#include <cstdio>

#include "base/closest_name.h"
#include "host/cli/chat.h"
#include "host/cli/pull.h"
#include "host/cli/serve.h"
#include "host/cli/top.h"
#include "nereid/status.h"

namespace nereid::cli {
namespace {

struct Command {
  const char* name;
  const char* arguments;
  const char* help;
  int (*run)(const std::vector<std::string>& args);
};

constexpr Command kCommands[] = {
    {"serve", "CHECKPOINT... [options]", "serve language models from their checkpoints", &RunServe},
    {"chat", "[MODEL] [options]", "talk to a served model", &RunChat},
    {"top", "[options]", "watch the load of a server's models", &RunTop},
    {"pull", "ORGANIZATION/MODEL...", "download checkpoints into the cache", &RunPull},
};

}  // namespace

int RunCommand(const std::vector<std::string>& args) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (args[0] == command.name) return command.run({args.begin() + 1, args.end()});
    names.emplace_back(command.name);
  }
  std::fprintf(stderr, "unknown command '%s'%s; 'nereid --help' lists the commands\n",
               args[0].c_str(), DidYouMean(args[0], names).c_str());
  return 2;
}

std::string CommandsText() {
  std::string text = "Commands, of which each has a --help:\n";
  for (const Command& command : kCommands) {
    std::string line = StrCat("  ", command.name, " ", command.arguments);
    line.resize(std::max<size_t>(line.size() + 2, 36), ' ');
    text += StrCat(line, command.help, "\n");
  }
  return text + "\n";
}

}  // namespace nereid::cli
