#include "host/cli/pull.h"

#include <cstdio>

#include "host/cli/served_model.h"

namespace nereid::cli {
namespace {

constexpr char kPullUsage[] =
    "Usage: nereid pull ORGANIZATION/MODEL[@REVISION]...\n"
    "Downloads what serving needs of these models, unless the cache has it, and prints the folder "
    "of\n"
    "each. HF_HOME or HF_HUB_CACHE names the cache, HF_ENDPOINT the hub, HF_TOKEN the token.\n";

}  // namespace

int RunPull(const std::vector<std::string>& args) {
  if (args.empty() || args[0].starts_with("-")) {
    const bool is_help = !args.empty() && (args[0] == "--help" || args[0] == "-h");
    std::fputs(kPullUsage, is_help ? stdout : stderr);
    return is_help ? 0 : 2;
  }
  ProgressBar progress(stderr);
  for (const std::string& arg : args) {
    const Result<HubId> id = ParseHubId(arg);
    const Result<std::string> folder = id.ok() ? PullCheckpoint(*id, progress) : id.status();
    if (!folder.ok()) {
      progress.Finish();
      std::fprintf(stderr, "nereid pull: %s\n", folder.status().message().c_str());
      return 1;
    }
    std::printf("%s\n", folder->c_str());
  }
  return 0;
}

}  // namespace nereid::cli
