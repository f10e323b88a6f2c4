// The requests that an instance has taken and not finished, by the number under which its worker
// knows them. Responses come from the instance's thread, which waits in Execute, and from the
// worker's, which hears of senders; one request is answered by one of them at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "backends/python_like_scripted/tensor_codec.h"
#include "nereid/request.h"

namespace nereid::scripted {

class OpenRequests {
 public:
  // `is_awaited`: FailAll leaves it alone until Leave, because who waits for its answer has either
  // that or the error. [instance's thread]
  uint64_t Add(Request request, bool is_awaited = false);
  // The execution of one that was added in advance begins. [instance's thread]
  void Begin(uint64_t key);
  void Leave(uint64_t key);

  // Sends a response, or with none only what `is_final` says; a request that gets its last one
  // leaves. A request that is not open any more is not an error: its client is gone, or the worker
  // was quicker than its own error. [any thread]
  void Respond(uint64_t key, PackedResponse* response, bool is_final);
  void Fail(uint64_t key, const Status& error);
  // The same for one that was added in advance and never ran.
  void FailUnrun(uint64_t key, const Status& error);
  // Everything that is open and not awaited. [any thread]
  void FailAll(const Status& error);
  // Back to the scheduler, for an iterative sequence.
  void Reschedule(uint64_t key);

  bool IsOpen(uint64_t key);
  bool IsCancelled(uint64_t key);
  // Calls `use` with the request while nobody can finish it; NOT_FOUND when it is not open.
  template <typename Use>
  auto With(uint64_t key, const Use& use) -> decltype(use(std::declval<Request&>())) {
    const std::shared_ptr<Open> open = Find(key);
    if (open == nullptr) return NotFoundError("the request was answered already");
    std::lock_guard lock(open->mutex);
    if (!open->request.is_open()) return NotFoundError("the request was answered already");
    return use(open->request);
  }

 private:
  struct Open {
    Open(Request request, bool is_awaited) : request(std::move(request)), is_awaited(is_awaited) {}
    std::mutex mutex;  // guards what follows
    Request request;
    bool is_awaited;
    // The response of a model that is not decoupled, until its final flag comes too.
    std::optional<Response> response;
  };
  std::shared_ptr<Open> Find(uint64_t key);
  void Remove(uint64_t key);
  static Status FailOne(Open& open, const Status& error);
  static Status Send(Open& open, PackedResponse* response, bool is_final);

  std::mutex mutex_;  // guards what follows; never held while a response is sent
  uint64_t next_key_ = 1;
  std::unordered_map<uint64_t, std::shared_ptr<Open>> open_;
};

}  // namespace nereid::scripted
