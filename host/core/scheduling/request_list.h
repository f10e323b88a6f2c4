// An intrusive doubly linked list of requests: no allocation, and a request is removed from any
// position in constant time. It does not own the requests. [under the mutex of the queue that
// contains it]
#pragma once

#include <cstddef>

#include "host/core/request/infer_request.h"

namespace nereid::core {

class RequestList {
 public:
  RequestList() = default;
  RequestList(const RequestList&) = delete;
  RequestList& operator=(const RequestList&) = delete;

  void PushBack(InferRequest* request) {
    request->queue_links = {last_, nullptr, this};
    (last_ == nullptr ? first_ : last_->queue_links.next) = request;
    last_ = request;
    ++size_;
  }
  // `request` must be in this list.
  void Remove(InferRequest* request) {
    auto& links = request->queue_links;
    (links.prev == nullptr ? first_ : links.prev->queue_links.next) = links.next;
    (links.next == nullptr ? last_ : links.next->queue_links.prev) = links.prev;
    links = {};
    --size_;
  }
  InferRequest* PopFront() {
    InferRequest* request = first_;
    if (request != nullptr) Remove(request);
    return request;
  }

  bool Contains(const InferRequest* request) const { return request->queue_links.list == this; }
  InferRequest* front() const { return first_; }
  static InferRequest* Next(const InferRequest* request) { return request->queue_links.next; }
  bool empty() const { return first_ == nullptr; }
  size_t size() const { return size_; }

 private:
  InferRequest* first_ = nullptr;
  InferRequest* last_ = nullptr;
  size_t size_ = 0;
};

}  // namespace nereid::core
