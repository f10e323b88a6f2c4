// Posted tasks form a lock-free stack that the loop empties at once. An eventfd wakes a sleeping
// loop.
#include "net/event_loop.h"

#include <event2/event.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/thread.h"

namespace nereid::net {
namespace {

// Replaces the empty stack while the loop sleeps. No task has this address.
LoopTask* AsleepMark() {
  return reinterpret_cast<LoopTask*>(uintptr_t{1});
}

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::Create() {
  std::unique_ptr<EventLoop> loop(new EventLoop());
  NEREID_RETURN_IF_ERROR(loop->Initialize());
  return loop;
}

Status EventLoop::Initialize() {
  event_config* config = event_config_new();
  if (config == nullptr) return InternalError("event loop: cannot allocate");
  // No lock is needed, because other threads reach the loop only through the eventfd.
  event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
  event_config_require_features(config, EV_FEATURE_ET);
  base_ = event_base_new_with_config(config);
  event_config_free(config);
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (base_ == nullptr || wake_fd_ < 0) {
    return InternalError("event loop: ", std::strerror(errno));
  }
  // Edge-triggered: each write wakes the loop once, and the counter never has to be read back to
  // zero.
  wake_event_ = event_new(base_, wake_fd_, EV_READ | EV_PERSIST | EV_ET, &OnWake, this);
  tick_event_ = event_new(base_, -1, EV_PERSIST, &OnTick, this);
  destroy_event_ = event_new(base_, -1, 0, &OnDestroy, this);
  if (wake_event_ == nullptr || tick_event_ == nullptr || destroy_event_ == nullptr) {
    return InternalError("event loop: cannot allocate its events");
  }
  const timeval one_second{1, 0};
  event_add(wake_event_, nullptr);
  event_add(tick_event_, &one_second);
  return Status::Ok();
}

EventLoop::~EventLoop() {
  Stop();
  // A task may already have run and caused this destruction while its poster is still inside Post.
  while (num_posting_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
  to_destroy_.clear();
  for (event* event : {wake_event_, tick_event_, destroy_event_}) {
    if (event != nullptr) event_free(event);
  }
  if (base_ != nullptr) event_base_free(base_);
  if (wake_fd_ >= 0) close(wake_fd_);
}

void EventLoop::Start(const char* name) {
  thread_ = StartThread([this, name] {
    pthread_setname_np(pthread_self(), name);
    Run();
  });
}

void EventLoop::Run() {
  while (!is_stopping_) {
    if (DoWork()) continue;
    SpinWait& spin = std::exchange(expects_input_, false) ? input_spin_ : spin_;
    if (spin.ShouldSpin() && spin.SpinUntil([this] { return DoWork(); })) continue;
    // From now on a thread that posts finds the mark and writes to the eventfd.
    LoopTask* expected = nullptr;
    if (!posted_.compare_exchange_strong(expected, AsleepMark())) continue;
    spin.Sleep([this] { event_base_loop(base_, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY); });
    expected = AsleepMark();
    posted_.compare_exchange_strong(expected, nullptr);
  }
}

// Runs everything that is ready, without waiting. Returns false if there was nothing.
bool EventLoop::DoWork() {
  const uint64_t before = num_events_;
  event_base_loop(base_, EVLOOP_NONBLOCK | EVLOOP_NO_EXIT_ON_EMPTY);
  const bool has_run = RunPosted();
  RunAfterPostedTasks();
  return has_run || num_events_ != before;
}

void EventLoop::RunAfterPostedTasks() {
  for (size_t i = 0; i < after_posted_.size(); ++i) after_posted_[i]->RunOnLoop();
  after_posted_.clear();
}

void EventLoop::Stop() {
  if (!thread_.joinable()) return;
  PostFunction([this] { is_stopping_ = true; });
  thread_.join();
  RunPosted();  // tasks posted after the loop ended; each cleans up after itself
}

void EventLoop::Post(LoopTask* task) {
  num_posting_.fetch_add(1, std::memory_order_relaxed);
  LoopTask* head = posted_.load(std::memory_order_relaxed);
  do {
    task->next_ = head == AsleepMark() ? nullptr : head;
  } while (!posted_.compare_exchange_weak(head, task, std::memory_order_release,
                                          std::memory_order_relaxed));
  // From here on `task` may already have run and been deleted.
  if (head == AsleepMark()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
  }
  num_posting_.fetch_sub(1, std::memory_order_release);
}

void EventLoop::PostFunction(std::function<void()> function) {
  struct FunctionTask final : LoopTask {
    std::function<void()> function;
    void RunOnLoop() override {
      std::unique_ptr<FunctionTask> self(this);
      function();
    }
  };
  auto* task = new FunctionTask();
  task->function = std::move(function);
  Post(task);
}

bool EventLoop::RunPosted() {
  if (posted_.load(std::memory_order_relaxed) == nullptr) return false;
  LoopTask* newest = posted_.exchange(nullptr, std::memory_order_acquire);
  LoopTask* oldest = nullptr;
  while (newest != nullptr) {
    LoopTask* next = newest->next_;
    newest->next_ = oldest;
    oldest = newest;
    newest = next;
  }
  while (oldest != nullptr) {
    LoopTask* next = oldest->next_;  // read first: the task may delete itself or be posted again
    oldest->RunOnLoop();
    oldest = next;
  }
  return true;
}

// Nothing to do: the loop checks for posted tasks after every poll.
void EventLoop::OnWake(int, short, void*) {}

void EventLoop::OnTick(int, short, void* self) {
  const auto& tick = static_cast<EventLoop*>(self)->tick_;
  if (!tick) return;
  try {
    tick();
  } catch (const std::bad_alloc&) {
    // The next tick does the work.
  }
}

void EventLoop::QueueForDestruction(std::shared_ptr<void> object) {
  to_destroy_.push_back(std::move(object));
  event_active(destroy_event_, EV_TIMEOUT, 0);
}

void EventLoop::OnDestroy(int, short, void* self) {
  const auto retired = std::move(static_cast<EventLoop*>(self)->to_destroy_);
}

}  // namespace nereid::net
