// What `nereid serve` prints: models before they are loaded, what is known afterwards, and how to
// call them. [main thread]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/cli/served_model.h"
#include "host/frontends.h"
#include "host/options.h"
#include "nereid/server.h"

namespace nereid::cli {

// "Qwen3-8B: Qwen3ForCausalLM, 8.19 B parameters, BF16, 16.4 GB, context of 40,960 tokens"
std::string DescribeModel(const ServedModel& model);

// Lines for standard output once the server is ready: engine, memory, addresses, one request.
std::string DescribeServer(const std::vector<ServedModel>& models, const Options& options,
                           const Server& server, const Frontends& frontends);

// The causes in the core's message about models that could not be loaded, each once: the message
// names one for each model that depends on the one that failed. Any other message is returned as it
// is.
std::string LoadFailure(const std::string& message);

// A command that asks the model something, for a shell. `base` has the options of curl that name
// the server, and the beginning of the URL.
std::string CurlLine(const ServedModel& model, const std::string& base, bool needs_key);

// The tokens that a model's KV cache holds, from the server's metrics; 0 if they do not say.
uint64_t CacheTokens(std::string_view metrics, const std::string& engine_model);

}  // namespace nereid::cli
