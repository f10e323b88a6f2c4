// Asks again and again.
#include "backends/llm_core/adapter/cancel_watch.h"

#include <iterator>
#include <utility>

#include "backends/llm_core/adapter/generation.h"

namespace nereid::llm_adapter {
namespace {

constexpr std::chrono::milliseconds kPeriod(2);

}  // namespace

CancelWatch::CancelWatch(std::function<void()> on_cancelled)
    : on_cancelled_(std::move(on_cancelled)), thread_([this] { Run(); }) {}

CancelWatch::~CancelWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void CancelWatch::Watch(std::weak_ptr<Generation> generation) {
  const std::lock_guard lock(mutex_);
  arrived_.push_back(std::move(generation));
  if (arrived_.size() == 1) changed_.notify_one();
}

void CancelWatch::Run() {
  std::vector<std::weak_ptr<Generation>> watched;
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
    std::erase_if(watched, [&](const std::weak_ptr<Generation>& one) {
      const std::shared_ptr<Generation> generation = one.lock();
      if (generation == nullptr) return true;
      const bool is_cancelled = generation->AskForCancellation();
      any_cancelled |= is_cancelled;
      return is_cancelled;  // it is known now
    });
    if (any_cancelled) on_cancelled_();
  }
}

}  // namespace nereid::llm_adapter
