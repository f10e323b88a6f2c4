// nereid-backend-check: runs the conformance suite on any backend library. Exit status: 0 all
// passed, 1 a check failed, 2 the command could not be carried out.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/conformance/suite.h"

namespace {

using namespace nereid;
using namespace nereid::conformance;

constexpr const char* kUsage = R"(usage: nereid-backend-check [options] path/libtriton_<backend>.so
  --model DIR          the folder of a model that uses the backend (config.pbtxt and versions)
  --config FILE        or only a config.pbtxt; without both, the backend completes an empty one
  --setting KEY=VALUE  a setting of the backend, as --backend-config gives it; may be repeated
  --quirk CHECK        this check may fail: the backend does so on purpose; may be repeated
  --patience SECONDS   how long one answer may take (default 60)
  --verbose            print the host's log to stderr
Prints one line for each check, and the counts.
)";

struct CommandLine {
  ModelUnderTestOptions model;
  Quirks quirks;
  bool verbose = false;
  bool help = false;
};

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return NotFoundError("'", path, "': cannot be read");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Status CheckQuirk(const std::string& name) {
  std::string known;
  for (const Check& check : Suite()) {
    if (check.name == name) return {};
    known += StrCat(known.empty() ? "" : ", ", check.name);
  }
  return InvalidArgError("--quirk '", name, "': expected one of ", known);
}

Status TakeOption(const std::string& option, const std::string& value, CommandLine* line) {
  if (option == "--model") {
    line->model.model_folder = value;
  } else if (option == "--config") {
    NEREID_ASSIGN_OR_RETURN(line->model.config, ReadFile(value));
  } else if (option == "--setting") {
    const size_t equals = value.find('=');
    if (equals == std::string::npos) {
      return InvalidArgError("--setting: expected KEY=VALUE, got '", value, "'");
    }
    line->model.backend_settings.emplace_back(value.substr(0, equals), value.substr(equals + 1));
  } else if (option == "--quirk") {
    NEREID_RETURN_IF_ERROR(CheckQuirk(value));
    line->quirks.names.insert(value);
  } else if (option == "--patience") {
    char* end = nullptr;
    const long seconds = std::strtol(value.c_str(), &end, 10);
    if (seconds < 1 || seconds > 86400 || *end != '\0') {
      return InvalidArgError("--patience: expected 1 to 86400 seconds, got '", value, "'");
    }
    line->model.patience = std::chrono::seconds(seconds);
  } else {
    return InvalidArgError("unknown option '", option, "'");
  }
  return {};
}

Result<CommandLine> Parse(const std::vector<std::string>& args) {
  CommandLine line;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--help" || arg == "-h") {
      line.help = true;
    } else if (arg == "--verbose") {
      line.verbose = true;
    } else if (arg.rfind("--", 0) == 0) {
      if (i + 1 == args.size()) return InvalidArgError("option '", arg, "': its value is missing");
      NEREID_RETURN_IF_ERROR(TakeOption(arg, args[++i], &line));
    } else if (line.model.library.empty()) {
      line.model.library = arg;
    } else {
      return InvalidArgError("expected one library, got '", line.model.library, "' and '", arg,
                             "'");
    }
  }
  if (line.model.library.empty() && !line.help) return InvalidArgError("no library is given");
  return line;
}

void Silence() {
  for (auto* set : {TRITONSERVER_ServerOptionsSetLogInfo, TRITONSERVER_ServerOptionsSetLogWarn,
                    TRITONSERVER_ServerOptionsSetLogError}) {
    (void)ToStatus(set(nullptr, false));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto line = Parse({argv + 1, argv + argc});
  if (!line.ok()) {
    std::fprintf(stderr, "%s\n%s", line.status().message().c_str(), kUsage);
    return 2;
  }
  if (line->help) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (!line->verbose) Silence();
  auto model = ModelUnderTest::Create(line->model);
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", model.status().message().c_str());
    return 2;
  }
  const int failed = RunSuite(**model, line->quirks);
  return failed == 0 ? 0 : 1;
}
