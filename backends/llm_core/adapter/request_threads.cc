// Loops of the response thread and the cancellation poller.
#include "backends/llm_core/adapter/request_threads.h"

#include <iterator>
#include <utility>

#include "backends/llm_core/adapter/active_request.h"
#include "base/thread.h"

namespace nereid::llm {
namespace {

constexpr std::chrono::milliseconds kPeriod(2);

}  // namespace

CancellationPoller::CancellationPoller(std::function<void()> on_cancelled)
    : on_cancelled_(std::move(on_cancelled)), thread_(StartThread([this] { Run(); })) {}

CancellationPoller::~CancellationPoller() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void CancellationPoller::Add(std::weak_ptr<ActiveRequest> active_request) {
  const std::lock_guard lock(mutex_);
  arrived_.push_back(std::move(active_request));
  if (arrived_.size() == 1) changed_.notify_one();
}

void CancellationPoller::Run() {
  std::vector<std::weak_ptr<ActiveRequest>> watched;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (watched.empty()) {
        changed_.wait(lock, [this] { return stop_ || !arrived_.empty(); });
      } else {
        changed_.wait_for(lock, kPeriod, [this] { return stop_; });
      }
      if (stop_) return;
      std::move(arrived_.begin(), arrived_.end(), std::back_inserter(watched));
      arrived_.clear();
    }
    bool any_cancelled = false;
    std::erase_if(watched, [&](const std::weak_ptr<ActiveRequest>& one) {
      const std::shared_ptr<ActiveRequest> active_request = one.lock();
      if (active_request == nullptr) return true;
      const bool is_cancelled = active_request->PollClient();
      any_cancelled |= is_cancelled;
      return is_cancelled;  // no further polling is needed
    });
    if (any_cancelled) on_cancelled_();
  }
}

ResponseThread::ResponseThread() : thread_(StartThread([this] { Run(); })) {}

ResponseThread::~ResponseThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ResponseThread::Enqueue(std::shared_ptr<ActiveRequest> active_request) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(active_request));
  if (queue_.size() == 1) changed_.notify_one();
}

void ResponseThread::Run() {
  std::vector<std::shared_ptr<ActiveRequest>> batch;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      batch.swap(queue_);
    }
    for (const std::shared_ptr<ActiveRequest>& active_request : batch) active_request->Flush();
    batch.clear();
  }
}

}  // namespace nereid::llm
