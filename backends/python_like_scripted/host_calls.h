// What a worker asks of the host while it runs: whether a request was cancelled, other models,
// metrics, the loading of models. Answers are posted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backends/python_like_scripted/errands.h"
#include "backends/python_like_scripted/infer_calls.h"
#include "backends/python_like_scripted/marshal.h"
#include "backends/python_like_scripted/metric_table.h"
#include "backends/python_like_scripted/open_requests.h"
#include "backends/python_like_scripted/worker.h"
#include "nereid/backend.h"

namespace nereid::scripted {

class HostCalls {
 public:
  // `open` and `errands` outlive it.
  HostCalls(const InstanceContext& instance, OpenRequests& open, Errands& errands,
            std::shared_ptr<Worker> worker);

  // (call, operation, arguments). An error means that the message is garbage. [worker's thread]
  Status OnCall(MarshalReader& message);
  Status OnCancel(MarshalReader& message);
  // [any thread]
  void CancelAll() { infer_calls_.CancelAll(); }

 private:
  Result<std::string> Answer(Operation operation, MarshalReader& message);
  Result<std::string> TraceContext(uint64_t request_key);
  Result<std::string> AskMetric(Operation operation, MarshalReader& message);
  // On threads of their own: loading takes its time, and a model that is asked whether it is ready
  // may be this one, whose answer the worker's thread has to hear.
  Status AskReadiness(int64_t call, MarshalReader& message);
  Status ControlModel(int64_t call, Operation operation, MarshalReader& message);
  void RunErrand(int64_t call, std::function<void()> errand);

  const Server server_;
  OpenRequests& open_;
  const std::shared_ptr<Worker> worker_;
  InferCalls infer_calls_;
  MetricTable metrics_;
  Errands& errands_;
};

}  // namespace nereid::scripted
