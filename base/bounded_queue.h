// A queue with a fixed capacity for many producer and many consumer threads. [any thread]
#pragma once

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

  // Returns false and leaves `item` unchanged if the queue is full or closed.
  bool TryPush(T&& item) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(item));
    }
    readable_.notify_one();
    return true;
  }

  // Waits while the queue is full. Returns false and leaves `item` unchanged if the queue is
  // closed.
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

  // Waits for an item. Returns nullopt when the queue is closed and empty.
  std::optional<T> Pop() {
    std::unique_lock lock(mutex_);
    readable_.wait(lock, [this] { return closed_ || !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    lock.unlock();
    writable_.notify_one();
    return item;
  }

  // Accepts no more items. Items in the queue can still be popped.
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
  const size_t capacity_;
  mutable std::mutex mutex_;  // guards items_ and closed_
  std::condition_variable readable_;
  std::condition_variable writable_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace nereid
