// A thread that runs jobs in the order of their arrival. [any thread]
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace nereid::llm {

class WorkQueue {
 public:
  using Job = std::function<void()>;

  // A sender waits while `max_jobs` jobs are queued.
  explicit WorkQueue(size_t max_jobs);
  ~WorkQueue();  // runs the queued jobs before
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Returns the number of the job, from 1.
  uint64_t Push(Job job);
  // Waits until the jobs up to this number are done.
  void WaitFor(uint64_t number);
  uint64_t num_pushed() const;
  bool is_full() const;

 private:
  void Run();

  const size_t max_jobs_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  uint64_t num_pushed_ = 0;
  uint64_t num_done_ = 0;
  bool stops_ = false;
  std::thread thread_;  // last member: the thread uses the others
};

}  // namespace nereid::llm
