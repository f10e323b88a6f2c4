// The two threads of a model that work on active requests beside the engine: one sends responses,
// the other polls for cancellations.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace nereid::llm {

class ActiveRequest;

// The thread that sends the responses of a model. The work behind ResponseSend (copies, the next
// ensemble step, a socket) then does not delay the engine. The queue contains each request at most
// once.
class ResponseThread {
 public:
  ResponseThread();
  // Sends what is queued, then joins the thread.
  ~ResponseThread();
  ResponseThread(const ResponseThread&) = delete;
  ResponseThread& operator=(const ResponseThread&) = delete;

  void Enqueue(std::shared_ptr<ActiveRequest> active_request);  // [any thread]

 private:
  void Run();

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::vector<std::shared_ptr<ActiveRequest>> queue_;
  bool stop_ = false;

  std::thread thread_;  // last member: the thread uses the others
};

// Forwards the cancellations of clients to the engine, and lets requests go on whose clients have
// read enough. A backend can only poll whether a request was cancelled or has room for responses.
// One thread polls all requests of a model every two milliseconds, so that an engine step need not
// poll thousands of them. It sleeps while there are no requests.
class CancellationPoller {
 public:
  // `on_cancelled` is called on the poller's thread after a round in which some requests became
  // cancelled.
  explicit CancellationPoller(std::function<void()> on_cancelled);
  ~CancellationPoller();
  CancellationPoller(const CancellationPoller&) = delete;
  CancellationPoller& operator=(const CancellationPoller&) = delete;

  void Add(std::weak_ptr<ActiveRequest> active_request);  // until the request ends [any thread]

 private:
  void Run();

  const std::function<void()> on_cancelled_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::vector<std::weak_ptr<ActiveRequest>> arrived_;
  bool stop_ = false;

  std::thread thread_;  // last member: the thread uses the others
};

}  // namespace nereid::llm
