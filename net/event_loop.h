// A thread that runs one libevent base. A socket stays on one loop for its whole life, and other
// threads reach the loop only through Post. Any number of posts wakes a sleeping loop once. [loop
// thread, unless stated otherwise]
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/spin_wait.h"
#include "nereid/status.h"

struct event;
struct event_base;

namespace nereid::net {

// A task for a loop. The link is intrusive, so that posting allocates nothing. A task may be posted
// again as soon as its RunOnLoop has begun.
class LoopTask {
 public:
  virtual void RunOnLoop() = 0;

 protected:
  ~LoopTask() = default;

 private:
  friend class EventLoop;
  LoopTask* next_ = nullptr;
};

class EventLoop {
 public:
  static Result<std::unique_ptr<EventLoop>> Create();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // [any thread] Runs `task` after all tasks posted before it. A task that is posted while the loop
  // stops runs inside Stop.
  void Post(LoopTask* task);
  // [any thread] Allocates; for infrequent work.
  void PostFunction(std::function<void()> function);

  // [loop thread] Runs `task` once after everything posted so far has run, so that one write
  // carries several responses. `task` must not be passed again before it runs.
  void RunAfterPosted(LoopTask* task) { after_posted_.push_back(task); }

  // [owner thread] Start runs the loop on a new thread with that name. Stop ends and joins the
  // thread.
  void Start(const char* name = "http-loop");
  void Stop();
  // The loop calls `tick` once a second. If it throws std::bad_alloc, the next call has to do its
  // work. Set it before Start.
  void SetTick(std::function<void()> tick) { tick_ = std::move(tick); }

  // Destroys `object` after the current callback has returned. An object may therefore destroy
  // itself.
  template <typename T>
  void DestroyLater(std::unique_ptr<T> object) {
    QueueForDestruction(std::shared_ptr<void>(std::move(object)));
  }

  // Reports a socket event. The loop then polls again before it sleeps, because more may follow.
  void CountEvent() { ++num_events_; }
  // Reports that a socket has received only part of a body. The loop then polls longer before it
  // sleeps.
  void ExpectInput() { expects_input_ = true; }

  event_base* base() { return base_; }

 private:
  EventLoop() = default;
  Status Initialize();
  void QueueForDestruction(std::shared_ptr<void> object);
  void Run();
  bool DoWork();
  bool RunPosted();
  void RunAfterPostedTasks();
  static void OnWake(int fd, short what, void* self);
  static void OnTick(int fd, short what, void* self);
  static void OnDestroy(int fd, short what, void* self);

  event_base* base_ = nullptr;
  event* wake_event_ = nullptr;
  event* tick_event_ = nullptr;
  event* destroy_event_ = nullptr;
  int wake_fd_ = -1;
  std::atomic<LoopTask*> posted_{nullptr};  // newest first, or AsleepMark()
  std::atomic<int> num_posting_{0};         // threads inside Post
  bool is_stopping_ = false;
  uint64_t num_events_ = 0;
  SpinWait spin_;
  // used after ExpectInput: a sender that waits for buffer space needs longer
  SpinWait input_spin_{3};
  bool expects_input_ = false;
  std::vector<LoopTask*> after_posted_;
  std::vector<std::shared_ptr<void>> to_destroy_;
  std::function<void()> tick_;
  std::thread thread_;
};

}  // namespace nereid::net
