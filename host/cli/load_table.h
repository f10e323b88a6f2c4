// What `nereid top` shows: the load of each model, from two readings of a server's metrics.
// [any thread]
#pragma once

#include <map>
#include <string>
#include <vector>

#include "host/cli/metrics_text.h"

namespace nereid::cli {

// The metrics of one model; counts are totals since the server's start.
struct ModelLoad {
  double num_requests = 0;
  double num_failures = 0;
  double num_queued = 0;  // in the model's queue
  // Only language models have these:
  bool is_engine = false;
  double num_running = 0;    // sequences
  double num_waiting = 0;    // sequences
  double num_tokens = 0;     // generated
  double cache_percent = 0;  // of the KV cache's blocks in use
  double num_first_tokens = 0;
  double first_token_seconds = 0;  // the sum of the times to first token
};

// The key is the model's name. The load of a model of `nereid serve` includes that of its steps.
using ServerLoad = std::map<std::string, ModelLoad>;

ServerLoad ReadServerLoad(const std::vector<MetricSample>& samples);

// A table with one line for each model. Rates and the mean time to first token are those of the
// `seconds` between the readings. Without `before` (empty), they are not shown.
std::string ShowServerLoad(const ServerLoad& before, const ServerLoad& now, double seconds);

}  // namespace nereid::cli
