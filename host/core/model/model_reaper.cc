#include "host/core/model/model_reaper.h"

#include <thread>
#include <utility>

namespace nereid {

ModelReaper::~ModelReaper() {
  WaitIdle();
}

void ModelReaper::Post(std::function<void()> end) {
  {
    std::lock_guard lock(mutex_);
    ++num_running_;
  }
  std::thread([this, end = std::move(end)]() mutable {
    end();
    end = nullptr;  // what it held ends before WaitIdle returns
    std::lock_guard lock(mutex_);
    --num_running_;
    // Under the lock: once it is free the reaper may be gone.
    idle_.notify_all();
  }).detach();
}

void ModelReaper::WaitIdle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return num_running_ == 0; });
}

}  // namespace nereid
