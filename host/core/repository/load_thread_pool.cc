// Starts threads for queued loads, and passes over stalled ones.
#include "host/core/repository/load_thread_pool.h"

#include <algorithm>
#include <utility>

#include "base/thread.h"

namespace nereid::core {

LoadThreadPool::LoadThreadPool(unsigned num_threads, LoadLimits limits)
    : num_threads_(std::max(num_threads, 1u)),
      limits_(limits),
      workers_(num_threads_ + limits.max_stalled + 1) {}

LoadThreadPool::~LoadThreadPool() {
  // A worker may start another one for the tasks that are still queued.
  while (true) {
    std::thread thread;
    {
      std::lock_guard lock(mutex_);
      const auto left = std::find_if(workers_.begin(), workers_.end(),
                                     [](const Worker& worker) { return worker.thread.joinable(); });
      if (left == workers_.end()) return;
      thread.swap(left->thread);
    }
    thread.join();
  }
}

void LoadThreadPool::Run(std::string name, Task task) {
  std::unique_lock lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (IsExhausted(now)) {
    const Status refused = ExhaustedError(now);
    lock.unlock();
    return Refuse(task, refused);
  }
  tasks_.push_back({std::move(name), std::move(task)});
  if (num_waiting_ >= tasks_.size()) {
    wake_.notify_one();
  } else if (MayStart(now) || num_waiting_ == 0) {
    StartWorker();
  }
}

void LoadThreadPool::Refuse(const Task& task, const Status& reason) {
  if (const auto tell = task(reason)) tell();
}

void LoadThreadPool::StartWorker() {
  const auto free = std::find_if(workers_.begin(), workers_.end(),
                                 [](const Worker& worker) { return !worker.is_alive; });
  if (free == workers_.end()) return;
  if (free->thread.joinable()) free->thread.join();  // the thread has left its loop
  free->thread = StartThread([this, worker = &*free] { RunWorker(worker); });
  free->is_alive = true;
}

void LoadThreadPool::RunWorker(Worker* worker) {
  std::unique_lock lock(mutex_);
  while (WaitForTask(lock)) {
    QueuedTask task = std::move(tasks_.front());
    tasks_.pop_front();
    worker->is_loading = true;
    worker->name = std::move(task.name);
    worker->start = Clock::now();
    if (!tasks_.empty() && num_waiting_ == 0) StartWorker();
    lock.unlock();
    std::function<void()> tell = task.load(Status::Ok());
    task.load = nullptr;  // destroys the captured objects outside the lock
    lock.lock();
    worker->is_loading = false;
    wake_.notify_one();
    if (tell == nullptr) continue;
    lock.unlock();
    tell();
    tell = nullptr;
    lock.lock();
  }
  worker->is_alive = false;
  wake_.notify_one();  // a worker that still waits finds no task either
}

bool LoadThreadPool::WaitForTask(std::unique_lock<std::mutex>& lock) {
  while (!tasks_.empty()) {
    const Clock::time_point now = Clock::now();
    if (MayStart(now)) return true;
    if (IsExhausted(now)) {
      const Status refused = ExhaustedError(now);
      QueuedTask task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      Refuse(task.load, refused);
      task.load = nullptr;
      lock.lock();
    } else {
      ++num_waiting_;
      wake_.wait_until(lock, NextStall(now));
      --num_waiting_;
    }
  }
  return false;
}

size_t LoadThreadPool::CountLoads(bool stalled, Clock::time_point now) const {
  return static_cast<size_t>(
      std::count_if(workers_.begin(), workers_.end(), [&](const Worker& worker) {
        return worker.is_loading && IsStalled(worker, now) == stalled;
      }));
}

bool LoadThreadPool::MayStart(Clock::time_point now) const {
  const size_t num_active = CountLoads(/*stalled=*/false, now);
  const size_t num_stalled = CountLoads(/*stalled=*/true, now);
  return num_active < num_threads_ && num_active + num_stalled < num_threads_ + limits_.max_stalled;
}

bool LoadThreadPool::IsExhausted(Clock::time_point now) const {
  return CountLoads(/*stalled=*/true, now) >= num_threads_ + limits_.max_stalled;
}

LoadThreadPool::Clock::time_point LoadThreadPool::NextStall(Clock::time_point now) const {
  Clock::time_point next = now + std::chrono::hours(1);
  for (const Worker& worker : workers_) {
    if (!worker.is_loading || IsStalled(worker, now)) continue;
    next = std::min(next, worker.start + limits_.stall_after);
  }
  return next;
}

Status LoadThreadPool::ExhaustedError(Clock::time_point now) const {
  std::string loads;
  for (const Worker& worker : workers_) {
    if (!worker.is_loading) continue;
    const auto age = std::chrono::duration_cast<std::chrono::seconds>(now - worker.start);
    loads += StrCat(loads.empty() ? "" : ", ", worker.name, " for ", age.count(), " s");
  }
  return UnavailableError("no thread is left to load models: ", num_threads_ + limits_.max_stalled,
                          " loads have not ended: ", loads);
}

}  // namespace nereid::core
