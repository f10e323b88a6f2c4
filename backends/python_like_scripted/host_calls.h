// What a worker asks of the host while it runs: whether a request was cancelled, other models,
// metrics, the loading of models. Answers are posted.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "backends/python_like_scripted/infer_calls.h"
#include "backends/python_like_scripted/marshal.h"
#include "backends/python_like_scripted/metric_table.h"
#include "backends/python_like_scripted/open_requests.h"
#include "backends/python_like_scripted/worker.h"
#include "nereid/backend.h"

namespace nereid::scripted {

class HostCalls {
 public:
  HostCalls(const InstanceContext& instance, OpenRequests& open, std::shared_ptr<Worker> worker);

  // (call, operation, arguments). An error means that the message is garbage. [worker's thread]
  Status OnCall(MarshalReader& message);
  Status OnCancel(MarshalReader& message);
  // [any thread]
  void CancelAll() { infer_calls_.CancelAll(); }

 private:
  void Reply(int64_t call, const Status& status, const std::string& value = "N");
  Result<std::string> Answer(Operation operation, MarshalReader& message);
  Result<std::string> TraceContext(uint64_t request_key);
  Result<std::string> IsModelReady(MarshalReader& message);
  Result<std::string> AskMetric(Operation operation, MarshalReader& message);
  // On a thread of its own, because loading takes its time.
  Status ControlModel(int64_t call, Operation operation, MarshalReader& message);

  const Server server_;
  OpenRequests& open_;
  const std::shared_ptr<Worker> worker_;
  InferCalls infer_calls_;
  MetricTable metrics_;
  std::vector<std::future<void>> controls_;  // ends before everything it uses
};

}  // namespace nereid::scripted
