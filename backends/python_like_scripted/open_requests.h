// The requests that an instance has received and not finished, by the key under which its worker
// knows them. Responses come from the instance thread, which waits in Execute, and from the worker
// thread, which receives those of response senders. Only one of them answers a request at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "backends/python_like_scripted/tensor_codec.h"
#include "nereid/request.h"

namespace nereid::python {

class OpenRequests {
 public:
  // Returns the request's key. `is_awaited`: FailAll skips the request until ClearAwaited, because
  // the thread that waits for its answer gets either the answer or an error. [instance thread]
  uint64_t Add(Request request, bool is_awaited = false);
  // Marks the start of the execution of a request that was added in advance. [instance thread]
  void MarkStarted(uint64_t key);
  void ClearAwaited(uint64_t key);

  // Sends `response`. If it is null, only handles `is_final`. The final response removes the
  // request. A key that is no longer open is not an error: the client may have gone, or the worker
  // may have answered before it failed. [any thread]
  void Respond(uint64_t key, PackedResponse* response, bool is_final);
  void Fail(uint64_t key, const Status& error);
  // As Fail, for a request that was added in advance and not executed.
  void FailNotExecuted(uint64_t key, const Status& error);
  // Fails all open requests that are not awaited. [any thread]
  void FailAll(const Status& error);
  // Returns the request to the scheduler, for an iterative sequence.
  void Reschedule(uint64_t key);

  bool IsOpen(uint64_t key);
  bool IsCancelled(uint64_t key);
  // Whether the reader of the request's responses can take another one; true if it is not open.
  bool HasRoom(uint64_t key);
  // Calls use(request) while no other thread can finish the request. NOT_FOUND if it is not open.
  template <typename Use>
  auto With(uint64_t key, const Use& use) -> decltype(use(std::declval<Request&>())) {
    const std::shared_ptr<OpenRequest> open = Find(key);
    if (open == nullptr) return NotFoundError("the request was answered already");
    std::lock_guard lock(open->mutex);
    if (!open->request.is_open()) return NotFoundError("the request was answered already");
    return use(open->request);
  }

 private:
  struct OpenRequest {
    OpenRequest(Request request, bool is_awaited)
        : request(std::move(request)), is_awaited(is_awaited) {}
    std::mutex mutex;  // guards the members below
    Request request;
    bool is_awaited;
    // The response of a model that is not decoupled, until the final flag arrives.
    std::optional<Response> response;
  };
  std::shared_ptr<OpenRequest> Find(uint64_t key);
  void Remove(uint64_t key);
  static Status FailOne(OpenRequest& open, const Status& error);
  static Status Send(OpenRequest& open, PackedResponse* response, bool is_final);

  std::mutex mutex_;  // guards the members below; not held while a response is sent
  uint64_t next_key_ = 1;
  std::unordered_map<uint64_t, std::shared_ptr<OpenRequest>> open_;
};

}  // namespace nereid::python
