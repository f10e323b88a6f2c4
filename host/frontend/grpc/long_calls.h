// Calls that last as long as their client likes, so that a stopping server can end them.
// [any thread]
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace nereid {

class LongCall {
 public:
  // Ends the call as soon as it owes nothing. May come again.
  virtual void EndWhenIdle() = 0;

 protected:
  ~LongCall() = default;
};

class LongCalls {
 public:
  void Add(const std::shared_ptr<LongCall>& call) {
    bool is_stopping;
    {
      const std::lock_guard lock(mutex_);
      calls_.emplace(call.get(), call);
      is_stopping = is_stopping_;
    }
    if (is_stopping) call->EndWhenIdle();
  }
  void Remove(LongCall* call) {
    const std::lock_guard lock(mutex_);
    calls_.erase(call);
  }
  // Those of now and those to come.
  void EndAllWhenIdle() {
    std::vector<std::shared_ptr<LongCall>> calls;
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
  std::unordered_map<LongCall*, std::weak_ptr<LongCall>> calls_;
  bool is_stopping_ = false;
};

}  // namespace nereid
