// The mailbox is a stack that the loop empties at once; an eventfd wakes the loop where it sleeps.
#include "host/frontend/http/transport/event_loop.h"

#include <event2/event.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace nereid::http {
namespace {

// In place of an empty stack: the loop sleeps. No task has this address.
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
  // No lock: other threads reach the loop through the eventfd alone.
  event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
  event_config_require_features(config, EV_FEATURE_ET);
  base_ = event_base_new_with_config(config);
  event_config_free(config);
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (base_ == nullptr || wake_fd_ < 0) {
    return InternalError("event loop: ", std::strerror(errno));
  }
  // By edges: each write wakes the loop once, and nobody has to read the counter back to zero.
  wake_event_ = event_new(base_, wake_fd_, EV_READ | EV_PERSIST | EV_ET, &OnWake, this);
  tick_event_ = event_new(base_, -1, EV_PERSIST, &OnTick, this);
  retire_event_ = event_new(base_, -1, 0, &OnRetire, this);
  if (wake_event_ == nullptr || tick_event_ == nullptr || retire_event_ == nullptr) {
    return InternalError("event loop: cannot allocate its events");
  }
  const timeval one_second{1, 0};
  event_add(wake_event_, nullptr);
  event_add(tick_event_, &one_second);
  return Status::Ok();
}

EventLoop::~EventLoop() {
  Stop();
  // A task may have run, and led here, before the thread that posted it has left Post.
  while (num_posting_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
  retired_.clear();
  for (event* event : {wake_event_, tick_event_, retire_event_}) {
    if (event != nullptr) event_free(event);
  }
  if (base_ != nullptr) event_base_free(base_);
  if (wake_fd_ >= 0) close(wake_fd_);
}

void EventLoop::Start(const char* name) {
  thread_ = std::thread([this, name] {
    pthread_setname_np(pthread_self(), name);
    Run();
  });
}

void EventLoop::Run() {
  while (!is_stopping_) {
    if (DoWork()) continue;
    SpinWait& spin = std::exchange(expects_input_, false) ? input_spin_ : spin_;
    if (spin.MayPay() && spin.Until([this] { return DoWork(); })) continue;
    // Whoever posts from now on finds the mark and writes to the eventfd.
    LoopTask* expected = nullptr;
    if (!posted_.compare_exchange_strong(expected, AsleepMark())) continue;
    spin.Rest([this] { event_base_loop(base_, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY); });
    expected = AsleepMark();
    posted_.compare_exchange_strong(expected, nullptr);
  }
}

// What is there now, without a wait. False: nothing.
bool EventLoop::DoWork() {
  const uint64_t before = num_events_;
  event_base_loop(base_, EVLOOP_NONBLOCK | EVLOOP_NO_EXIT_ON_EMPTY);
  const bool has_run = RunPosted();
  RunAfterwards();
  return has_run || num_events_ != before;
}

void EventLoop::RunAfterwards() {
  for (size_t i = 0; i < after_posted_.size(); ++i) after_posted_[i]->RunOnLoop();
  after_posted_.clear();
}

void EventLoop::Stop() {
  if (!thread_.joinable()) return;
  PostFunction([this] { is_stopping_ = true; });
  thread_.join();
  RunPosted();  // what came after the end: it cleans up after itself
}

void EventLoop::Post(LoopTask* task) {
  num_posting_.fetch_add(1, std::memory_order_relaxed);
  LoopTask* head = posted_.load(std::memory_order_relaxed);
  do {
    task->next_ = head == AsleepMark() ? nullptr : head;
  } while (!posted_.compare_exchange_weak(head, task, std::memory_order_release,
                                          std::memory_order_relaxed));
  // From here on `task` may already have run and be gone.
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
    LoopTask* next = oldest->next_;  // read first: the task may end itself or be posted anew
    oldest->RunOnLoop();
    oldest = next;
  }
  return true;
}

// The loop looks for itself what was posted.
void EventLoop::OnWake(int, short, void*) {}

void EventLoop::OnTick(int, short, void* self) {
  const auto& tick = static_cast<EventLoop*>(self)->tick_;
  if (tick) tick();
}

void EventLoop::RetireLater(std::shared_ptr<void> object) {
  retired_.push_back(std::move(object));
  event_active(retire_event_, EV_TIMEOUT, 0);
}

void EventLoop::OnRetire(int, short, void* self) {
  const auto retired = std::move(static_cast<EventLoop*>(self)->retired_);
}

}  // namespace nereid::http
