// The command line of `nereid serve`: its own options, and the flags of a server. [main thread]
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "host/options.h"
#include "nereid/status.h"

namespace nereid::cli {

struct ServeOptions {
  bool show_help = false;
  std::vector<std::string> checkpoints;  // folders, hub ids, or "demo"
  std::vector<std::string> names;        // of the models; empty: named after the checkpoints
  std::string chat_template;             // a file; empty: that of the checkpoint
  std::string chat_parser = "auto";      // a value of nereid-repo's --chat-parser
  std::string speculation = "off";       // a value of the parameter speculative_decoding
  int64_t json_whitespace = -1;  // a value of the parameter json_whitespace; -1: its default
  int64_t max_model_len = 0;     // tokens of a sequence; 0: the limit of the model
  uint64_t memory_budget = 0;    // bytes of the weights of loaded models; 0: no limit
  int64_t idle_s = 0;            // after which a model is unloaded; 0: never
  std::string engine = "auto";   // a value of nereid-repo's --backend
  // LoRA adapters: names and folders.
  std::vector<std::pair<std::string, std::string>> adapters;
  Options server;
};

// `args` excludes the command. INVALID_ARG for an unknown option suggests the closest one;
// UNSUPPORTED for options of engines that do not exist yet.
Result<ServeOptions> ParseServeOptions(const std::vector<std::string>& args);

std::string ServeUsageText();

}  // namespace nereid::cli
