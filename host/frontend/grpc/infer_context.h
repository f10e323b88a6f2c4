// State shared by all inference calls of one gRPC endpoint, and the steps that unary and streaming
// calls have in common. Outlives every call. [any thread]
#pragma once

#include <memory>
#include <new>
#include <optional>
#include <string>

#include "host/frontend/access_control.h"
#include "host/frontend/grpc/call.h"
#include "host/frontend/grpc/drainable_calls.h"
#include "host/frontend/grpc/grpc_options.h"
#include "host/frontend/grpc/infer_request_builder.h"
#include "host/frontend/tracing/tracer.h"
#include "host/log.h"
#include "nereid/server.h"

namespace re2 {
class RE2;
}

namespace nereid {

class InferContext {
 public:
  static Result<std::unique_ptr<InferContext>> Create(const Server& server,
                                                      const GrpcOptions& options);
  ~InferContext();

  const Server& server() const { return server_; }
  const ResponseAllocator& allocator() const { return allocator_; }
  const GrpcOptions& options() const { return options_; }
  const AccessControl& access() const { return access_; }
  DrainableCalls& drainable_calls() const { return drainable_calls_; }

  // Loads the model when a request for it arrives; null if the model is not loaded on demand.
  ModelDemand* DemandOf(const std::string& model) const;

  ForwardedHeaders HeadersToForward(const Call& call) const;

  // Returns the trace of a request to the model named in the parsed `message`; null if it is not
  // sampled.
  TracedRequest SampleTrace(const Call& call, const InferMessage& message) const;

  // nullopt if the call's client may infer with the model named in the parsed `message`.
  std::optional<Denial> CheckModel(const Call& call, const InferMessage& message) const;

  // Looks up the model named in the parsed `resources.message`. NOT_FOUND names the model.
  Status FindModel(RequestResources& resources) const;
  // Creates the request, without callbacks. Requires a successful FindModel.
  Result<InferRequest> MakeRequest(RequestResources& resources,
                                   const ForwardedHeaders& headers) const;

 private:
  InferContext(const Server& server, const GrpcOptions& options, ResponseAllocator allocator);

  const Server& server_;
  const GrpcOptions options_;
  const AccessControl access_;
  const ResponseAllocator allocator_;
  std::unique_ptr<re2::RE2> header_pattern_;  // null: no header is forwarded
  mutable DrainableCalls drainable_calls_;
};

// Returns the result of `work()`, which parses a message of `message_bytes` and submits a request,
// or UNAVAILABLE if memory for it is exhausted. The core itself throws nothing.
template <typename Work>
Status WithoutBadAlloc(size_t message_bytes, const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return UnavailableError("cannot allocate memory for a request of ", message_bytes, " bytes");
  }
}

// The end of a call for whose response memory is exhausted. The text is left out if there is no
// memory for it either.
inline CallStatus ResponseWithoutMemory() noexcept {
  CallStatus status{GrpcCode::kUnavailable};
  try {
    status.message = "cannot allocate memory for the response";
  } catch (const std::bad_alloc&) {
  }
  return status;
}

// Writes the verbose log line that Triton writes for a rejected request.
inline void LogInferFailed(const std::string& request_id, const Status& status) {
  LogVerbose("[request id: ", request_id.empty() ? "<id_unknown>" : request_id,
             "] Infer failed: ", status.message());
}

// Starts ModelInfer: one request, one response (unary_infer.cc). The returned handler owns itself;
// null if the call is already finished. [loop thread]
CallHandler* StartUnaryInfer(const InferContext& context, Call& call, const Slice& request);

// Starts ModelStreamInfer: a bidirectional stream of both (stream_infer.cc). The returned handler
// owns itself. [loop thread]
CallHandler* StartStreamInfer(const InferContext& context, Call& call);

}  // namespace nereid
