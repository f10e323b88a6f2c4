#include "host/core/repository/load_thread_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/thread.h"

namespace nereid::core {
namespace {

constexpr std::chrono::seconds kMaxIdle{5};

}  // namespace

LoadThreadPool::LoadThreadPool(unsigned num_threads)
    : num_threads_(std::max(num_threads, 1u)), workers_(num_threads_) {}

LoadThreadPool::~LoadThreadPool() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  for (Worker& worker : workers_) {
    if (worker.thread.joinable()) worker.thread.join();
  }
}

void LoadThreadPool::Run(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  if (num_idle_ >= tasks_.size()) {
    wake_.notify_one();
    return;
  }
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].running) continue;
    if (workers_[i].thread.joinable()) workers_[i].thread.join();  // the thread has left its loop
    workers_[i].running = true;
    workers_[i].thread = StartThread([this, i] { RunWorker(i); });
    return;
  }
}

void LoadThreadPool::RunWorker(size_t worker) {
  std::unique_lock lock(mutex_);
  while (true) {
    ++num_idle_;
    wake_.wait_for(lock, kMaxIdle, [this] { return closing_ || !tasks_.empty(); });
    --num_idle_;
    if (tasks_.empty()) break;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // destroys the captured objects outside the lock
    lock.lock();
  }
  workers_[worker].running = false;
}

}  // namespace nereid::core
