// Registry of calls without a natural end (streams, watches), so that a stopping server can end
// them. [any thread]
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace nereid {

class DrainableCall {
 public:
  // Ends the call once all its pending responses are sent. May be called more than once.
  virtual void EndWhenIdle() = 0;

 protected:
  ~DrainableCall() = default;
};

class DrainableCalls {
 public:
  void Add(const std::shared_ptr<DrainableCall>& call) {
    bool is_stopping;
    {
      const std::lock_guard lock(mutex_);
      calls_.emplace(call.get(), call);
      is_stopping = is_stopping_;
    }
    if (is_stopping) call->EndWhenIdle();
  }
  void Remove(DrainableCall* call) {
    const std::lock_guard lock(mutex_);
    calls_.erase(call);
  }
  // Ends all registered calls, and calls that are added later.
  void EndAllWhenIdle() {
    std::vector<std::shared_ptr<DrainableCall>> calls;
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
      for (const auto& [key, call] : calls_) {
        if (auto alive = call.lock()) calls.push_back(std::move(alive));
      }
    }
    for (const auto& call : calls) call->EndWhenIdle();
  }

 private:
  std::mutex mutex_;  // guards both below
  std::unordered_map<DrainableCall*, std::weak_ptr<DrainableCall>> calls_;
  bool is_stopping_ = false;
};

}  // namespace nereid
