// What all models of a server share. Created by the server before any model, destroyed after the
// last; models hold a reference. [any thread]
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/core/backend/backend_manager.h"
#include "host/core/cache/response_cache.h"
#include "host/core/memory/memory_manager.h"
#include "host/core/model/model_reaper.h"
#include "host/core/observe/metrics.h"
#include "host/core/scheduling/queue_attendant.h"
#include "host/core/scheduling/rate_limiter.h"
#include "triton/core/tritonserver.h"

namespace nereid {

struct CoreOptions {
  BackendOptions backends;
  MetricsOptions metrics;
  // Settings by policy name: --host-policy.
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> host_policies;
  MemoryOptions memory;
  std::map<int, double> gpu_load_limits;  // device -> share of its memory: --model-load-gpu-limit
  std::map<int, uint64_t> state_growth_limits;  // device -> bytes: --cuda-virtual-address-size
  bool rate_limit = false;                      // --rate-limit=execution_count
  std::vector<ResourceLimit> resource_limits;
};

struct CoreServices {
  CoreServices(TRITONSERVER_Server* server, CoreOptions options);

  TRITONSERVER_Server* const server;  // the handle that backends get; may call the C API
  const CoreOptions options;
  // Destroyed bottom up once every model has ended: queues, metrics and at last the backends.
  // Leaked where a model or a backend has not ended.
  MemoryManager memory;
  BackendManager backends;
  std::unique_ptr<ResponseCache> cache;  // set before any model; null: none is configured
  Metrics metrics;
  std::unique_ptr<RateLimiter> rate_limiter;  // null: off
  QueueAttendant attendant;
  ModelReaper reaper;
};

}  // namespace nereid
