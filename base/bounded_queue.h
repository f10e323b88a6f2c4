// A queue between threads with a fixed capacity: many producers, many consumers, closed once. [any
// thread]
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace nereid {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // False, with `item` untouched, when the queue is full or closed.
  bool TryPush(T&& item) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(item));
    }
    readable_.notify_one();
    return true;
  }

  // Waits for room; false, with `item` untouched, once closed.
  bool Push(T&& item) {
    {
      std::unique_lock lock(mutex_);
      writable_.wait(lock, [this] { return closed_ || items_.size() < capacity_; });
      if (closed_) return false;
      items_.push_back(std::move(item));
    }
    readable_.notify_one();
    return true;
  }

  // Waits for an item; empty once the queue is closed and drained.
  std::optional<T> Pop() {
    std::unique_lock lock(mutex_);
    readable_.wait(lock, [this] { return closed_ || !items_.empty(); });
    return TakeFront(lock);
  }

  // As Pop, and empty also when nothing came before `deadline`.
  std::optional<T> PopUntil(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    readable_.wait_until(lock, deadline, [this] { return closed_ || !items_.empty(); });
    return TakeFront(lock);
  }

  // No item enters any more; those inside can still be popped.
  void Close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    readable_.notify_all();
    writable_.notify_all();
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  std::optional<T> TakeFront(std::unique_lock<std::mutex>& lock) {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    lock.unlock();
    writable_.notify_one();
    return item;
  }

  const size_t capacity_;
  mutable std::mutex mutex_;  // guards items_ and closed_
  std::condition_variable readable_;
  std::condition_variable writable_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace nereid
