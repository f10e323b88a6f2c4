#include "host/repository_poller.h"

#include "base/thread.h"

namespace nereid {
namespace {

constexpr size_t kMaxPolls = 16;  // polls in progress at a time

}  // namespace

RepositoryPoller::RepositoryPoller(const Server& server, std::chrono::seconds interval)
    : server_(server), interval_(interval) {
  if (interval_.count() > 0) thread_ = StartThread([this] { Run(); });
}

RepositoryPoller::~RepositoryPoller() {
  Stop();
}

void RepositoryPoller::Stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool RepositoryPoller::IsIdle() const {
  const std::lock_guard lock(mutex_);
  return num_polls_ == 0;
}

void RepositoryPoller::Run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, interval_, [this] { return is_stopping_; })) {
    if (num_polls_ >= kMaxPolls) continue;
    ++num_polls_;
    StartThread([this] { PollOnce(); }).detach();
  }
}

void RepositoryPoller::PollOnce() {
  (void)server_.PollModelRepository();  // the core logs what has failed, each failure once
  const std::lock_guard lock(mutex_);
  --num_polls_;
}

}  // namespace nereid
