#include "host/cli/command.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/closest_name.h"
#include "host/cli/chat.h"
#include "host/cli/generate.h"
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

// Replaces this process by nereid-grammar, which is installed beside it. The host itself contains
// no part of the engine, and so no grammars.
int RunGrammar(const std::vector<std::string>& args) {
  std::error_code ignored;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  std::string program = (self.parent_path() / "nereid-grammar").string();
  std::vector<std::string> kept = args;
  std::vector<char*> argv = {program.data()};
  for (std::string& argument : kept) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  std::fprintf(stderr, "'%s': %s\n", program.c_str(), std::strerror(errno));
  return 2;
}

constexpr Command kCommands[] = {
    {"serve", "CHECKPOINT... [options]", "serve language models from their checkpoints", &RunServe},
    {"generate", "CHECKPOINT --prompt TEXT", "ask a checkpoint once", &RunGenerate},
    {"chat", "[MODEL] [options]", "talk to a served model", &RunChat},
    {"top", "[options]", "watch the load of a server's models", &RunTop},
    {"grammar", "test [options]", "try texts against a schema, expression or grammar", &RunGrammar},
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
  return text + "nereid --version prints the version.\n\n";
}

}  // namespace nereid::cli
