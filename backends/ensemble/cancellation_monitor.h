// Passes cancellation of client requests on to the running steps. A backend can only poll whether
// its request was cancelled. One thread therefore polls the requests of all ensembles every few
// milliseconds, and sleeps while there are none. [any thread]
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backends/ensemble/request_runner.h"

namespace nereid::ensemble {

class CancellationMonitor {
 public:
  explicit CancellationMonitor(std::chrono::milliseconds period = std::chrono::milliseconds(10));
  // Every request has been removed before.
  ~CancellationMonitor();

  // A monitored request. Its owner removes it before the client's request is released.
  class Entry {
    friend class CancellationMonitor;
    std::weak_ptr<RequestRunner> runner;
    size_t position = 0;
  };

  void Add(Entry& entry, const std::shared_ptr<RequestRunner>& runner);
  void Remove(Entry& entry);

 private:
  void Run();
  // Returns the runners whose client has cancelled. Requires mutex_.
  std::vector<std::shared_ptr<RequestRunner>> FindCancelled();

  const std::chrono::milliseconds period_;
  // Guards all below. Locked while clients are polled, so that Remove waits for the end of the
  // poll.
  std::mutex mutex_;
  std::vector<Entry*> entries_;
  bool sleeping_ = false;  // the thread waits for a first entry
  bool stopping_ = false;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace nereid::ensemble
