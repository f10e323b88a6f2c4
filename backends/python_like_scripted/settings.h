// The parsed options of --backend-config=python,<key>=<value>. [any thread]
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "nereid/json.h"
#include "nereid/status.h"

namespace nereid::python {

struct Settings {
  // The interpreter of models that name none: the key `interpreter`, else the environment variable
  // NEREID_PYTHON, else python3.
  std::string interpreter;
  bool is_interpreter_configured = false;       // set by the key or the variable
  uint64_t region_bytes = 1 << 20;              // shm-default-byte-size
  uint64_t region_growth_bytes = 1 << 20;       // shm-growth-byte-size
  uint64_t region_max_bytes = 0;                // for each direction; 0: without limit
  std::string region_prefix = "nereid";         // shm-region-prefix-name
  std::chrono::milliseconds start_timeout{};    // also limits finalize
  std::chrono::milliseconds load_timeout{};     // stub-timeout-seconds if given; 0: without limit
  std::chrono::milliseconds execute_timeout{};  // execute-timeout-seconds; 0: without limit
  std::vector<std::string> unknown_keys;        // keys of no meaning; Triton ignores them

  // INVALID_ARG names the key with the wrong value. The values of `thread-pool-size` and
  // `shm_message_queue_size` are checked and otherwise unused: calls of other models need no
  // thread, and queues have no fixed length.
  static Result<Settings> Parse(const Json& backend_config);
  // "key, key, ..."
  static std::string KnownKeys();
};

}  // namespace nereid::python
