// Serves the calls that a worker makes of the host: whether a request was cancelled, inference of
// other models, metrics, loading and unloading models. Answers are posted to the worker.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/python_like_scripted/deferred_calls.h"
#include "backends/python_like_scripted/infer_calls.h"
#include "backends/python_like_scripted/marshal.h"
#include "backends/python_like_scripted/metric_table.h"
#include "backends/python_like_scripted/open_requests.h"
#include "backends/python_like_scripted/worker.h"
#include "nereid/backend.h"

namespace nereid::python {

class HostCalls {
 public:
  // `open` and `deferred_calls` outlive it.
  HostCalls(const InstanceContext& instance, OpenRequests& open, DeferredCalls& deferred_calls,
            std::shared_ptr<Worker> worker);

  // Handles the message (call, operation, arguments). An error means that the message is invalid.
  // [worker thread]
  Status OnCall(MarshalReader& message);
  Status OnCancel(MarshalReader& message);
  Status OnConsumed(MarshalReader& message);
  // Answers the senders that wait for room if there is some. Returns whether any still waits, also
  // a model that this worker's model calls. [worker thread]
  bool ServeWaiting();
  // [any thread]
  void CancelAll() { infer_calls_.CancelAll(); }

 private:
  Result<std::string> Answer(Operation operation, MarshalReader& message);
  Status AwaitRoom(int64_t call, MarshalReader& message);
  Result<std::string> TraceContext(uint64_t request_key);
  Result<std::string> CallMetric(Operation operation, MarshalReader& message);
  // These run as deferred calls: loading takes long, and a model whose readiness is queried may be
  // this one, whose answer the worker thread has to receive.
  Status CheckModelReady(int64_t call, MarshalReader& message);
  Status ControlModel(int64_t call, Operation operation, MarshalReader& message);
  void Defer(int64_t call, std::function<void()> work);

  const Server server_;
  OpenRequests& open_;
  const std::shared_ptr<Worker> worker_;
  InferCalls infer_calls_;
  MetricTable metrics_;
  struct WaitingSender {
    int64_t call;
    uint64_t request_key;
  };
  std::vector<WaitingSender> waiting_senders_;  // [worker thread]
  DeferredCalls& deferred_calls_;
};

}  // namespace nereid::python
