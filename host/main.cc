// The executable: parses flags or a sub-command, and runs it.
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "host/cli/command.h"
#include "host/launch_rank.h"
#include "host/options.h"
#include "host/run_server.h"

namespace nereid {
namespace {

int Main(Program program, const std::vector<std::string>& args) {
  if (args == std::vector<std::string>{"--version"}) {
    std::puts("nereid " NEREID_VERSION);
    return 0;
  }
  if (program == Program::kNereid && !args.empty() && !args[0].starts_with("-")) {
    return cli::RunCommand(args);
  }
  if (program == Program::kNereid && args.empty()) {
    std::fprintf(
        stderr,
        "%snereid --model-repository PATH serves a model repository; 'nereid --help' lists "
        "the options.\n",
        cli::CommandsText().c_str());
    return 1;
  }
  const Result<Options> options = ParseOptions(args, program);
  if (!options.ok()) {
    const std::string message = options.status().message();
    std::fprintf(stderr, "%s; '%s --help' lists the options\n", message.c_str(),
                 program == Program::kTriton ? "tritonserver" : "nereid");
    return 1;
  }
  if (options->show_help) {
    if (program == Program::kNereid) std::fputs(cli::CommandsText().c_str(), stdout);
    std::fputs(UsageText("nereid").c_str(), stdout);
    return 0;
  }
  if (const std::optional<LaunchRank> rank =
          FindLaunchRank([](const char* name) { return std::getenv(name); })) {
    if (rank->rank > 0) {
      std::fprintf(stderr, "nereid: rank %d of %d opens no port and waits: rank 0 serves\n",
                   rank->rank, rank->num_ranks);
      WaitForFirstRank(*rank);
      return 0;
    }
    LeadRanks(*rank);
  }
  return RunServer(*options);
}

}  // namespace
}  // namespace nereid

int main(int argc, char** argv) {
  if (argc == 0) return 1;
  return nereid::Main(nereid::ProgramOf(argv[0]), {argv + 1, argv + argc});
}
