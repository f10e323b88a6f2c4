// `nereid generate`: asks a checkpoint one prompt and prints the text while it arrives, without a
// server that stays. [main thread]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host/cli/serve_options.h"
#include "nereid/status.h"

namespace nereid::cli {

struct GenerateOptions {
  bool show_help = false;
  std::string prompt;
  int max_tokens = 128;
  std::optional<double> temperature;  // not set: the checkpoint's
  std::optional<int64_t> seed;
  ServeOptions
      serve;  // of the server that lives as long as the request: one checkpoint, its engine
};

// `args` excludes the command. INVALID_ARG suggests the closest option for an unknown one.
Result<GenerateOptions> ParseGenerateOptions(const std::vector<std::string>& args);

std::string GenerateUsageText();

// The body of the request to /v1/completions.
std::string GenerateBody(const GenerateOptions& options, const std::string& model);

// The text that an event of the answer's stream adds. An error that the server sends has its text.
Result<std::string> ParseTextDelta(const std::string& data);

// Returns the exit status of the process.
int RunGenerate(const std::vector<std::string>& args);

}  // namespace nereid::cli
