// What a worker asks of the host while it runs: whether a request was cancelled, other models,
// metrics. Answers are posted. [OnCall and OnCancel: the worker's thread]
#pragma once

#include <cstdint>
#include <memory>

#include "backends/python_like_scripted/marshal.h"
#include "backends/python_like_scripted/open_requests.h"
#include "backends/python_like_scripted/worker.h"
#include "nereid/backend.h"

namespace nereid::scripted {

class HostCalls {
 public:
  HostCalls(const InstanceContext& instance, OpenRequests& open, std::shared_ptr<Worker> worker)
      : instance_(instance), open_(open), worker_(std::move(worker)) {}

  // (call, operation, arguments). An error means that the message is garbage.
  Status OnCall(MarshalReader& message);
  Status OnCancel(MarshalReader& message);
  // [any thread]
  void CancelAll() {}

 private:
  // Writes (kind, call, is_ok, value) of a result that `write` adds to the message.
  template <typename Write>
  void Reply(int64_t call, const Status& status, const Write& write);

  const InstanceContext& instance_;
  OpenRequests& open_;
  const std::shared_ptr<Worker> worker_;
};

}  // namespace nereid::scripted
