#include "host/core/repository/load_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace nereid {
namespace {

constexpr std::chrono::seconds kMaxIdle{5};

}  // namespace

LoadPool::LoadPool(unsigned num_threads)
    : num_threads_(std::max(num_threads, 1u)), slots_(num_threads_) {}

LoadPool::~LoadPool() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  for (Slot& slot : slots_) {
    if (slot.thread.joinable()) slot.thread.join();
  }
}

void LoadPool::Run(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  if (num_idle_ >= tasks_.size()) {
    wake_.notify_one();
    return;
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].running) continue;
    if (slots_[i].thread.joinable()) slots_[i].thread.join();  // it has left its loop
    slots_[i].running = true;
    slots_[i].thread = std::thread(&LoadPool::Work, this, i);
    return;
  }
}

void LoadPool::Work(size_t slot) {
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
    task = nullptr;  // what it holds dies outside of the lock
    lock.lock();
  }
  slots_[slot].running = false;
}

}  // namespace nereid
