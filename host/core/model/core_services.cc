#include "host/core/model/core_services.h"

#include "host/core/memory/gpu_monitor.h"

namespace nereid {

CoreServices::CoreServices(TRITONSERVER_Server* server_handle, CoreOptions core_options)
    : server(server_handle),
      options(std::move(core_options)),
      memory(options.memory),
      backends(options.backends, &memory),
      metrics(options.metrics) {
  MachineReaders readers;
  readers.pinned_pool = [this] {
    const MemoryManager::PoolUse use = memory.PinnedUse();
    return MachineReaders::Pool{use.total_bytes, use.used_bytes};
  };
  readers.gpus = [] { return GpuMonitor::Get().Read(); };
  metrics.set_readers(std::move(readers));
  if (options.rate_limit) rate_limiter = std::make_unique<RateLimiter>(options.resource_limits);
}

}  // namespace nereid
