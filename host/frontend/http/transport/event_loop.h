// One thread around one libevent base: sockets belong to a loop for life, other threads reach it by
// Post alone. A busy loop is woken once for any number of posts. [loop thread, where not said]
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

namespace nereid::http {

// Work for a loop. Intrusive, so that posting allocates nothing; may be posted again once RunOnLoop
// has begun.
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

  // [any thread] `task` runs soon, after those posted before it. What comes while the loop stops
  // runs inside Stop.
  void Post(LoopTask* task);
  // [any thread] For the rare paths: allocates.
  void PostFunction(std::function<void()> function);

  // [loop thread] `task` runs when what is posted by now has run: one write for many answers. Not
  // again before it runs.
  void RunAfterPosted(LoopTask* task) { after_posted_.push_back(task); }

  // [owner thread] Start runs the loop on its own thread, named so; Stop ends and joins it.
  void Start(const char* name = "http-loop");
  void Stop();
  // `tick` runs on the loop once a second. Before Start.
  void SetTick(std::function<void()> tick) { tick_ = std::move(tick); }

  // Destroys `object` after the current callback has returned: safe from inside its own methods.
  template <typename T>
  void DestroyLater(std::unique_ptr<T> object) {
    RetireLater(std::shared_ptr<void>(std::move(object)));
  }

  // A socket had something to do: more may follow at once.
  void CountEvent() { ++num_events_; }
  // A socket is in the middle of a body: its next bytes are on their way.
  void ExpectInput() { expects_input_ = true; }

  event_base* base() { return base_; }
  bool IsThisThread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  EventLoop() = default;
  Status Initialize();
  void RetireLater(std::shared_ptr<void> object);
  void Run();
  bool DoWork();
  bool RunPosted();
  void RunAfterwards();
  static void OnWake(int fd, short what, void* self);
  static void OnTick(int fd, short what, void* self);
  static void OnRetire(int fd, short what, void* self);

  event_base* base_ = nullptr;
  event* wake_event_ = nullptr;
  event* tick_event_ = nullptr;
  event* retire_event_ = nullptr;
  int wake_fd_ = -1;
  std::atomic<LoopTask*> posted_{nullptr};  // newest first; RunPosted turns it round; or a mark
  std::atomic<int> num_posting_{0};         // threads inside Post
  bool is_stopping_ = false;
  uint64_t num_events_ = 0;
  SpinWait spin_;
  SpinWait input_spin_{3};  // in the middle of a body: a sender that waits for room takes longer
  bool expects_input_ = false;
  std::vector<LoopTask*> after_posted_;
  std::vector<std::shared_ptr<void>> retired_;
  std::function<void()> tick_;
  std::thread thread_;
};

}  // namespace nereid::http
