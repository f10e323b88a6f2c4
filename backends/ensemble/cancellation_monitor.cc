#include "backends/ensemble/cancellation_monitor.h"

#include <new>

#include "base/thread.h"

namespace nereid::ensemble {

CancellationMonitor::CancellationMonitor(std::chrono::milliseconds period)
    : period_(period), thread_(StartThread([this] { Run(); })) {}

CancellationMonitor::~CancellationMonitor() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CancellationMonitor::Add(Entry& entry, const std::shared_ptr<RequestRunner>& runner) {
  bool wake;
  {
    std::lock_guard lock(mutex_);
    entry.runner = runner;
    entry.position = entries_.size();
    entries_.push_back(&entry);
    wake = sleeping_;
  }
  if (wake) changed_.notify_all();
}

void CancellationMonitor::Remove(Entry& entry) {
  std::lock_guard lock(mutex_);
  entries_.back()->position = entry.position;
  entries_[entry.position] = entries_.back();
  entries_.pop_back();
}

void CancellationMonitor::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (entries_.empty()) {
      sleeping_ = true;
      changed_.wait(lock, [this] { return stopping_ || !entries_.empty(); });
      sleeping_ = false;
    }
    changed_.wait_for(lock, period_, [this] { return stopping_; });
    try {
      const std::vector<std::shared_ptr<RequestRunner>> cancelled = FindCancelled();
      lock.unlock();
      for (const std::shared_ptr<RequestRunner>& runner : cancelled) runner->Cancel();
    } catch (const std::bad_alloc&) {
      // Where there is no memory now, the next poll finds them again.
    }
    if (!lock.owns_lock()) lock.lock();
  }
}

std::vector<std::shared_ptr<RequestRunner>> CancellationMonitor::FindCancelled() {
  std::vector<std::shared_ptr<RequestRunner>> cancelled;
  for (const Entry* entry : entries_) {
    std::shared_ptr<RequestRunner> runner = entry->runner.lock();
    if (runner != nullptr && runner->IsCancelled()) cancelled.push_back(std::move(runner));
  }
  return cancelled;
}

}  // namespace nereid::ensemble
