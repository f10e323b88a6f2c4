// Threads for calls that may take minutes, such as loading a model, so that they do not block an
// event loop, and the requests that run on them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "host/frontend/http/kserve_context.h"
#include "host/frontend/http/transport/http_connection.h"
#include "nereid/status.h"
#include "net/event_loop.h"

namespace nereid::http {

// The threads start when they are first needed. [any thread]
class BlockingPool {
 public:
  // Up to `max_pending` calls wait for one of up to `max_threads` threads.
  BlockingPool(size_t max_threads, size_t max_pending)
      : max_threads_(max_threads), max_pending_(max_pending) {}
  // Runs the queued work, then joins the threads.
  ~BlockingPool();

  // Returns false, without running `work`, if the queue is full or the system starts no thread.
  [[nodiscard]] bool Run(std::function<void()> work);

 private:
  void WorkUntilStopped();

  const size_t max_threads_;
  const size_t max_pending_;
  std::mutex mutex_;  // guards all members below
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
  size_t num_idle_ = 0;
  bool is_stopping_ = false;
};

// A request whose work runs on the pool. Its response is sent on the connection's loop, if the
// client is still connected: UNAVAILABLE if the pool's queue is full. Exists until the work is
// done. [loop thread]
class BlockingCall final : public net::LoopTask, public InFlightCall {
 public:
  static void Start(KServeContext& context, BlockingPool& pool, HttpConnection& connection,
                    std::function<Status()> work);

 private:
  BlockingCall(KServeContext& context, HttpConnection& connection, std::function<Status()> work);

  void OnDisconnect() override { connection_ = nullptr; }

  void RunOnLoop() override;

  KServeContext& context_;
  net::EventLoop& loop_;
  HttpConnection* connection_;
  std::function<Status()> work_;
  Status status_;
};

}  // namespace nereid::http
