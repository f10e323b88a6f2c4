// Where a model's requests wait for an instance. Instances pull: the instance thread forms its own
// batch, so that a request changes threads once. Knows no backend. [any thread]
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "host/core/request/infer_request.h"
#include "nereid/status.h"

namespace nereid {

enum class TakeMode {
  kWait,  // waits for a batch
  kPeek,  // waits for a batch, but leaves it
  kTry,   // takes a batch that is ready
  kLook,  // as kTry, but leaves it
};

constexpr bool Waits(TakeMode mode) {
  return mode == TakeMode::kWait || mode == TakeMode::kPeek;
}
constexpr bool Leaves(TakeMode mode) {
  return mode == TakeMode::kPeek || mode == TakeMode::kLook;
}

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // On error the request stays with the caller.
  virtual Status Enqueue(InferRequest* request) = 0;
  // Fills `batch` for the model's instance of that index, unless it is left. False: there is
  // nothing now, where the mode does not wait; nothing will ever come, otherwise. [that instance's
  // thread]
  virtual bool Take(size_t instance, TakeMode mode, std::vector<InferRequest*>* batch) = 0;
  bool TakeBatch(size_t instance, std::vector<InferRequest*>* batch) {
    return Take(instance, TakeMode::kWait, batch);
  }
  // Appends what waits for that instance and no other, each to be executed by itself, until `batch`
  // has `most`. False: there is none. Never waits. [that instance's thread, after Take]
  virtual bool TakeInTurn(size_t /*instance*/, size_t /*most*/,
                          std::vector<InferRequest*>* /*batch*/) {
    return false;
  }
  // The request's flag was raised: if it still waits here it is answered on the attendant's thread.
  virtual void OnCancelled(InferRequest* request) = 0;
  // The model has one instance more, of the next index, or does without that of `instance`: it
  // takes nothing new from then on, finishes what only it can, then its Take returns false.
  virtual void AddInstance() = 0;
  virtual void RetireInstance(size_t instance) = 0;
  // No new work comes: what waits for more of it, like an open sequence, ends by itself.
  virtual void StopIntake() {}
  // No request enters any more; instances finish what is queued, then Take returns false.
  virtual void Stop() = 0;
  virtual uint64_t num_pending() const = 0;
  // That take further requests.
  virtual uint64_t num_open_sequences() const { return 0; }
};

}  // namespace nereid
