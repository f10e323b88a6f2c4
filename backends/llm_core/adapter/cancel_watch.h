// Carries cancellation from the clients to the engine. A backend can only ask whether a request was
// cancelled: one thread asks for all requests of a model, every other millisecond while there are
// any, and sleeps otherwise, so that a step of the engine need not ask for each of thousands.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace nereid::llm_adapter {

class Generation;

class CancelWatch {
 public:
  // `on_cancelled` is called on the watch's thread after some of the watched generations have
  // learned that they are cancelled; once for each of them.
  explicit CancelWatch(std::function<void()> on_cancelled);
  ~CancelWatch();
  CancelWatch(const CancelWatch&) = delete;
  CancelWatch& operator=(const CancelWatch&) = delete;

  void Watch(std::weak_ptr<Generation> generation);  // until it ends [any thread]

 private:
  void Run();

  const std::function<void()> on_cancelled_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::vector<std::weak_ptr<Generation>> arrived_;
  bool stop_ = false;

  std::thread thread_;  // last
};

}  // namespace nereid::llm_adapter
