// The threads that load models. [any thread]
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "nereid/status.h"

namespace nereid::core {

struct LoadLimits {
  // A load that lasts longer is stalled.
  std::chrono::milliseconds stall_after = std::chrono::seconds(60);
  // Beyond the configured number of threads.
  size_t max_stalled = 32;
};

// Up to --model-load-thread-count loads at a time. A load that lasts longer than a limit is
// stalled: it no longer counts, so other loads go on, on further threads. Once the number of
// stalled loads reaches a limit as well, further loads are refused. Threads end when no load is
// queued, so that a serving process does not keep them. [any thread]
class LoadThreadPool {
 public:
  // Called once: with Ok to load on a thread of the pool, or with UNAVAILABLE, which names the
  // stalled loads, if the load is refused. A refused task may run on the thread that calls Run.
  // Returns a function that tells the caller that the load has ended, or null. The pool calls it
  // once the load does not count any more, so that the caller may begin another one.
  using Task = std::function<std::function<void()>(const Status& admission)>;

  LoadThreadPool(unsigned num_threads, LoadLimits limits);
  // Runs the queued tasks, then joins the threads.
  ~LoadThreadPool();

  // `name` describes the load in error messages.
  void Run(std::string name, Task task);

 private:
  using Clock = std::chrono::steady_clock;
  struct QueuedTask {
    std::string name;
    Task load;
  };
  struct Worker {
    std::thread thread;
    bool is_alive = false;
    bool is_loading = false;
    std::string name;  // of the task in progress
    Clock::time_point start;
  };

  void RunWorker(Worker* worker);
  static void Refuse(const Task& task, const Status& reason);
  // Waits while the next task may not start. Returns false if no task is left: the worker ends.
  bool WaitForTask(std::unique_lock<std::mutex>& lock);
  // The following require mutex_.
  void StartWorker();
  bool IsStalled(const Worker& worker, Clock::time_point now) const {
    return worker.is_loading && now - worker.start >= limits_.stall_after;
  }
  size_t CountLoads(bool stalled, Clock::time_point now) const;
  bool MayStart(Clock::time_point now) const;
  // No thread is left for a further load, and none of the loads is expected to end.
  bool IsExhausted(Clock::time_point now) const;
  // When the next load becomes stalled.
  Clock::time_point NextStall(Clock::time_point now) const;
  Status ExhaustedError(Clock::time_point now) const;

  const size_t num_threads_;
  const LoadLimits limits_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable wake_;
  std::deque<QueuedTask> tasks_;
  // One more than loads may run: while tasks are queued, a worker waits until one may start.
  std::vector<Worker> workers_;
  size_t num_waiting_ = 0;  // workers that wait until a task may start
};

}  // namespace nereid::core
