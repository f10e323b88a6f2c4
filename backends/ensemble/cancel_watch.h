// Carries cancellation from the client's request to the running steps. A backend can only ask
// whether its request was cancelled, so one thread asks for all requests of all ensembles, every
// few milliseconds while there are any, and sleeps otherwise. [any thread]
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backends/ensemble/runner.h"

namespace nereid::ensemble {

class CancelWatch {
 public:
  explicit CancelWatch(std::chrono::milliseconds period = std::chrono::milliseconds(10));
  // Every request has been forgotten.
  ~CancelWatch();

  // A watched request. Its owner forgets it before the client's request is released.
  class Entry {
    friend class CancelWatch;
    std::weak_ptr<Runner> runner;
    size_t position = 0;
  };

  void Watch(Entry& entry, const std::shared_ptr<Runner>& runner);
  void Forget(Entry& entry);

 private:
  void Run();
  // Runners whose client has cancelled; under mutex_.
  std::vector<std::shared_ptr<Runner>> FindCancelled();

  const std::chrono::milliseconds period_;
  // Guards all below; held while clients are asked, so that Forget waits for that.
  std::mutex mutex_;
  std::vector<Entry*> entries_;
  bool sleeping_ = false;  // the thread waits for a first entry
  bool stopping_ = false;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace nereid::ensemble
