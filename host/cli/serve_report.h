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

// A command that asks the model something, for a shell.
std::string CurlLine(const ServedModel& model, const std::string& url, bool needs_key);

// The tokens that a model's KV cache holds, from the server's metrics; 0 if they do not say.
uint64_t CacheTokens(std::string_view metrics, const std::string& engine_model);

}  // namespace nereid::cli
