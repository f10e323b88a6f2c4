// One thread that serves the queues of every model where nobody else would be in time: it answers
// requests that were cancelled or timed out while all instances are busy. Requests without timeout
// and cancellation never touch it. One a server. [any thread]
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace nereid {

class QueueAttendant {
 public:
  using Task = std::function<void()>;

  QueueAttendant() = default;
  // Runs what is due, drops what is not, joins.
  ~QueueAttendant();

  void Post(Task task) { PostAt(0, std::move(task)); }
  // Runs `task` on the attendant's thread when the steady clock reaches `deadline_ns`. Tasks hold
  // what they need by weak_ptr.
  void PostAt(uint64_t deadline_ns, Task task);

 private:
  void Run();

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::multimap<uint64_t, Task> tasks_;  // by deadline
  bool stopping_ = false;
  std::thread thread_;  // started by the first task
};

}  // namespace nereid
