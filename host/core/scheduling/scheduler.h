// Where a model's requests wait for an instance. Instances pull: the instance thread forms its own
// batch, so that a request changes threads once. Knows no backend. [any thread]
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "nereid/status.h"
#include "request/infer_request.h"

namespace nereid {

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // On error the request stays with the caller.
  virtual Status Enqueue(InferRequest* request) = 0;
  // Waits for work and fills `batch`; false once stopped. [instance thread]
  virtual bool TakeBatch(std::vector<InferRequest*>* batch) = 0;
  // The request's flag was raised: if it still waits here it is answered on the attendant's thread.
  virtual void OnCancelled(InferRequest* request) = 0;
  // No request enters any more; instances finish what is queued, then TakeBatch returns false.
  virtual void Stop() = 0;
  virtual uint64_t num_pending() const = 0;
};

}  // namespace nereid
