// What inference calls of one endpoint share, and what they all do first. Outlives every call.
// [any thread]
#pragma once

#include <memory>
#include <string>

#include "host/frontend/grpc/call.h"
#include "host/frontend/grpc/grpc_options.h"
#include "host/frontend/grpc/infer_request_builder.h"
#include "host/frontend/grpc/long_calls.h"
#include "host/frontend/tracing/tracer.h"
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
  LongCalls& long_calls() const { return long_calls_; }

  ForwardedHeaders HeadersToForward(const Call& call) const;

  // The trace of a request to the model of the parsed `message`, if it is to have one.
  TracedRequest SampleTrace(const Call& call, const InferMessage& message) const;

  // Looks up the model of the parsed `parts.message`; NOT_FOUND names it.
  Status FindModel(InferParts& parts) const;
  // A request for it, ready for callbacks. Requires FindModel.
  Result<InferRequest> MakeRequest(InferParts& parts, const ForwardedHeaders& headers) const;

 private:
  InferContext(const Server& server, const GrpcOptions& options, ResponseAllocator allocator);

  const Server& server_;
  const GrpcOptions options_;
  const ResponseAllocator allocator_;
  std::unique_ptr<re2::RE2> header_pattern_;  // null: none is forwarded
  mutable LongCalls long_calls_;
};

}  // namespace nereid
