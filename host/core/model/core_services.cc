#include "host/core/model/core_services.h"

#include <thread>
#include <utility>

#include "base/thread.h"
#include "host/core/memory/gpus.h"

namespace nereid::core {

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

ModelReaper::~ModelReaper() {
  WaitIdle();
}

void ModelReaper::Post(std::function<void()> end) {
  {
    std::lock_guard lock(mutex_);
    ++num_running_;
  }
  StartThread([this, end = std::move(end)]() mutable {
    end();
    end = nullptr;  // the objects that it captured are destroyed before WaitIdle returns
    std::lock_guard lock(mutex_);
    --num_running_;
    // Notifies under the lock: the reaper may be destroyed as soon as the lock is free.
    idle_.notify_all();
  }).detach();
}

void ModelReaper::WaitIdle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return num_running_ == 0; });
}

}  // namespace nereid::core
