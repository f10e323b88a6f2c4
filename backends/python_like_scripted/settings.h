// What --backend-config=python,<key>=<value> may say, checked. [any thread]
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "nereid/json.h"
#include "nereid/status.h"

namespace nereid::scripted {

struct Settings {
  // The interpreter of models that name none: `interpreter`, else the variable NEREID_PYTHON, else
  // python3.
  std::string interpreter;
  bool is_interpreter_chosen = false;           // by the key or the variable
  uint64_t region_bytes = 1 << 20;              // shm-default-byte-size
  uint64_t region_growth_bytes = 1 << 20;       // shm-growth-byte-size
  uint64_t region_max_bytes = 0;                // shm-max-byte-size, each way; 0: none
  std::string region_prefix = "nereid";         // shm-region-prefix-name
  std::chrono::milliseconds start_timeout{};    // stub-timeout-seconds; also for finalize
  std::chrono::milliseconds load_timeout{};     // stub-timeout-seconds when it is given; 0: none
  std::chrono::milliseconds execute_timeout{};  // execute-timeout-seconds; 0: none
  std::vector<std::string> unknown_keys;  // which nobody here understands; Triton ignores them

  // INVALID_ARG names the key whose value is wrong. `thread-pool-size` and
  // `shm_message_queue_size` are checked and have no meaning here: calls of other models take no
  // thread, queues have no fixed length.
  static Result<Settings> Parse(const Json& backend_config);
  // "key, key, ..."
  static std::string KnownKeys();
};

}  // namespace nereid::scripted
