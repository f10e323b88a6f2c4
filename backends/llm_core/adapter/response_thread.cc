// Flushes generations in the order in which they had news.
#include "backends/llm_core/adapter/response_thread.h"

#include "backends/llm_core/adapter/generation.h"

namespace nereid::llm_adapter {

ResponseThread::ResponseThread() : thread_([this] { Run(); }) {}

ResponseThread::~ResponseThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ResponseThread::Enqueue(std::shared_ptr<Generation> generation) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(generation));
  if (queue_.size() == 1) changed_.notify_one();
}

void ResponseThread::Run() {
  std::vector<std::shared_ptr<Generation>> batch;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      batch.swap(queue_);
    }
    for (const std::shared_ptr<Generation>& generation : batch) generation->Flush();
    batch.clear();
  }
}

}  // namespace nereid::llm_adapter
