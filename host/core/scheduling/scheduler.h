// The interface of schedulers: a queue of requests that wait for an instance. Instance threads pull
// batches, so a request changes threads once. Schedulers do not know the backend. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "host/core/request/infer_request.h"
#include "nereid/status.h"

namespace nereid::core {

enum class TakeMode {
  kWait,      // waits for a batch and takes it
  kWaitPeek,  // waits for a batch without taking it
  kTry,       // takes a batch that is ready, without waiting
  kTryPeek,   // checks for a ready batch without waiting or taking it
};

constexpr bool IsBlocking(TakeMode mode) {
  return mode == TakeMode::kWait || mode == TakeMode::kWaitPeek;
}
constexpr bool IsPeek(TakeMode mode) {
  return mode == TakeMode::kWaitPeek || mode == TakeMode::kTryPeek;
}

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // On error the caller keeps the request.
  virtual Status Enqueue(InferRequest* request) = 0;
  // Fills `batch` for the instance of index `instance`, unless `mode` only peeks. Returns false if
  // a mode that does not wait finds no batch, or if a waiting mode will never find one again. [that
  // instance's thread]
  virtual bool Take(size_t instance, TakeMode mode, std::vector<InferRequest*>* batch) = 0;
  bool TakeBatch(size_t instance, std::vector<InferRequest*>* batch) {
    return Take(instance, TakeMode::kWait, batch);
  }
  // Appends requests that only this instance can execute, each an execution of its own, until
  // `batch` contains `most` requests. Returns false if there are none. Never waits. [that
  // instance's thread, after Take]
  virtual bool TakeForSerialExecution(size_t /*instance*/, size_t /*most*/,
                                      std::vector<InferRequest*>* /*batch*/) {
    return false;
  }
  // The request was cancelled. If it is still queued here, it fails on the timeout thread.
  virtual void OnCancelled(InferRequest* request) = 0;
  // AddInstance adds an instance with the next index. RetireInstance removes one: from then on it
  // takes no new requests, finishes the requests that only it can execute, and then its Take
  // returns false.
  virtual void AddInstance() = 0;
  virtual void RetireInstance(size_t instance) = 0;
  // No new requests follow. State that waits for further requests, such as open sequences, ends by
  // itself.
  virtual void StopIntake() {}
  // Refuses new requests. Instances finish the queued ones, then Take returns false.
  virtual void Stop() = 0;
  virtual uint64_t num_pending() const = 0;
  // Number of sequences that accept further requests.
  virtual uint64_t num_open_sequences() const { return 0; }
};

// The set of a model's instances that take no more requests. [under the scheduler's mutex]
class RetiredInstances {
 public:
  void Add(size_t instance) {
    if (retired_.size() <= instance) retired_.resize(instance + 1);
    retired_[instance] = true;
  }
  bool Contains(size_t instance) const { return instance < retired_.size() && retired_[instance]; }

 private:
  std::vector<bool> retired_;  // indexed by instance; almost always empty
};

// ---- errors for requests that no instance will execute [any thread] ----

// Fail `request`, which ends its ownership. No queue may contain it, and the caller must not hold a
// lock.
inline void FailCancelled(InferRequest* request) {
  request->Fail(CancelledError(request->LogPrefix(), "request to model '",
                               request->schema().model_name, "' was cancelled while it was queued"),
                FailureReason::kCanceled);
}
inline void FailTimedOut(InferRequest* request) {
  request->Fail(UnavailableError("Request timeout expired"), FailureReason::kRejected);
}

// The error of Enqueue after the scheduler was stopped.
inline Status StoppedError(const InferRequest& request) {
  return UnavailableError(request.LogPrefix(), "model '", request.schema().model_name,
                          "' is being unloaded");
}

}  // namespace nereid::core
