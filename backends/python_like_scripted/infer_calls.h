// Inference calls that a worker makes of other models. Inputs stay where the worker put them until
// the model has read them; the called model writes its outputs directly into the caller's shared
// memory. A call outlives its session if the model takes longer than the worker lives.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/python_like_scripted/infer_call.h"
#include "backends/python_like_scripted/marshal.h"
#include "backends/python_like_scripted/open_requests.h"
#include "backends/python_like_scripted/worker.h"
#include "nereid/server.h"

namespace nereid::python {

struct PackedCall;

class InferCalls {
 public:
  InferCalls(Server server, OpenRequests& open, std::shared_ptr<Worker> worker);

  // Starts the call (request, accepts_stream). The outcome, also a refusal, is posted to the
  // worker. An error means that the message is invalid. [worker thread]
  Status Start(int64_t number, MarshalReader& message);
  // The worker's model has read `count` further responses of the call. [worker thread]
  void OnConsumed(int64_t number, int64_t count);
  // Lets called models go on that have waited too long for the worker's model to read their
  // responses. Returns whether any model still waits. [worker thread]
  bool ReleaseStalled();
  // Requests cancellation. [any thread]
  void Cancel(int64_t number);
  void CancelAll();

 private:
  // The call in flight with this number, or null.
  std::shared_ptr<InferCall> Find(int64_t number) const;
  std::vector<std::shared_ptr<InferCall>> All() const;
  Status Send(const PackedCall& packed, InferCall& call);
  TRITONSERVER_InferenceTrace* ChildTrace(uint64_t request_key);

  const Server server_;
  OpenRequests& open_;
  const std::shared_ptr<Worker> worker_;
  const std::shared_ptr<InferCallTable> table_ = std::make_shared<InferCallTable>();
};

}  // namespace nereid::python
