// See blocking_pool.h.
#include "host/frontend/http/calls/blocking_pool.h"

#include <memory>
#include <utility>

#include "base/thread.h"

namespace nereid::http {

BlockingPool::~BlockingPool() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

bool BlockingPool::Run(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (queue_.size() >= max_pending_) return false;
  queue_.push_back(std::move(work));
  if (queue_.size() > num_idle_ && threads_.size() < max_threads_) {
    StartThreads(
        1, [this](size_t) { WorkUntilStopped(); }, threads_);
  }
  if (threads_.empty()) {
    queue_.pop_back();
    return false;
  }
  changed_.notify_one();
  return true;
}

void BlockingPool::WorkUntilStopped() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++num_idle_;
    changed_.wait(lock, [this] { return is_stopping_ || !queue_.empty(); });
    --num_idle_;
    if (queue_.empty()) return;
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

void BlockingCall::Start(KServeContext& context, BlockingPool& pool, HttpConnection& connection,
                         std::function<Status()> work) {
  auto* call = new BlockingCall(context, connection, std::move(work));
  connection.BeginCall(call);
  const bool is_posted = pool.Run([call] {
    call->status_ = call->work_();
    call->loop_.Post(call);
  });
  if (is_posted) return;
  call->status_ = UnavailableError("the queue of long-running calls is full, try again later");
  call->loop_.Post(call);
}

BlockingCall::BlockingCall(KServeContext& context, HttpConnection& connection,
                           std::function<Status()> work)
    : context_(context),
      loop_(connection.loop()),
      connection_(&connection),
      work_(std::move(work)) {
  context_.num_calls.fetch_add(1);
}

void BlockingCall::RunOnLoop() {
  const std::unique_ptr<BlockingCall> self(this);
  context_.num_calls.fetch_sub(1);
  if (connection_ == nullptr) return;
  if (status_.ok()) {
    connection_->Reply({}, "");
  } else {
    ReplyError(*connection_, status_, context_.http_status_of_error);
  }
}

}  // namespace nereid::http
