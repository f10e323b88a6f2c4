// The thread that sends the responses of a model: what happens behind ResponseSend (copies, the
// next step of an ensemble, a socket) costs the engine nothing. Holds each generation at most once.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace nereid::llm_adapter {

class Generation;

class ResponseThread {
 public:
  ResponseThread();
  // Sends what is queued, then joins.
  ~ResponseThread();
  ResponseThread(const ResponseThread&) = delete;
  ResponseThread& operator=(const ResponseThread&) = delete;

  void Enqueue(std::shared_ptr<Generation> generation);  // [any thread]

 private:
  void Run();

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Generation>> queue_;
  bool stop_ = false;

  std::thread thread_;  // last
};

}  // namespace nereid::llm_adapter
