// How unary calls that are no inference end. [gRPC threads]
#pragma once

#include <grpcpp/server_context.h>

#include <utility>

#include "status_code.h"
#include "work_queue.h"

namespace nereid {

inline grpc::ServerUnaryReactor* AnswerNow(grpc::CallbackServerContext* call,
                                           const Status& status) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// `work` returns the call's Status; it must not block.
template <typename Work>
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* call, const Work& work) {
  return AnswerNow(call, work());
}

// Runs `work`, which may block, on `queue`; then ends the call with its Status.
template <typename Work>
grpc::ServerUnaryReactor* AnswerLater(WorkQueue& queue, grpc::CallbackServerContext* call,
                                      Work work) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  const bool is_posted =
      queue.Post([reactor, work = std::move(work)] { reactor->Finish(ToGrpc(work())); });
  if (!is_posted) {
    reactor->Finish(
        ToGrpc(UnavailableError("too many calls that take long are waiting, try later")));
  }
  return reactor;
}

}  // namespace nereid
