// The services that all models of a server share. Created by the server before any model, destroyed
// after the last one; models hold a reference. [any thread]
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "host/core/backend/backend_manager.h"
#include "host/core/cache/response_cache.h"
#include "host/core/memory/memory_manager.h"
#include "host/core/observe/metrics.h"
#include "host/core/scheduling/queue_timeout_thread.h"
#include "host/core/scheduling/rate_limiter.h"
#include "triton/core/tritonserver.h"

namespace nereid::core {

struct CoreOptions {
  BackendOptions backends;
  MetricsOptions metrics;
  // Settings by policy name (--host-policy).
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> host_policies;
  MemoryOptions memory;
  // Device -> fraction of its memory: --model-load-gpu-limit.
  std::map<int, double> gpu_load_limits;
  std::map<int, uint64_t> state_growth_limits;  // device -> bytes: --cuda-virtual-address-size
  bool rate_limit = false;                      // --rate-limit=execution_count
  std::vector<ResourceLimit> resource_limits;
};

// Runs the destructors of models on separate threads: the last reference to a model may be dropped
// on one of its instance threads, which cannot join itself. One per server. [any thread]
class ModelReaper {
 public:
  ModelReaper() = default;
  // Waits until all posted tasks have run.
  ~ModelReaper();

  // Runs `end` on a thread of its own, so that a slow one does not delay others.
  void Post(std::function<void()> end);
  // Waits until all posted tasks, and the tasks that they posted, have run.
  void WaitIdle();

 private:
  std::mutex mutex_;  // guards what follows
  std::condition_variable idle_;
  size_t num_running_ = 0;
};

struct CoreServices {
  CoreServices(TRITONSERVER_Server* server, CoreOptions options);

  TRITONSERVER_Server* const server;  // the handle that backends receive
  const CoreOptions options;
  // Destroyed in reverse order after every model has ended. Leaked if a model or a backend did not
  // finish.
  MemoryManager memory;
  BackendManager backends;
  std::unique_ptr<ResponseCache> cache;  // set before any model is loaded; null: not configured
  Metrics metrics;
  std::unique_ptr<RateLimiter> rate_limiter;  // null: off
  QueueTimeoutThread timeout_thread;
  ModelReaper reaper;
};

}  // namespace nereid::core
