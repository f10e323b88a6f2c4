// How unary calls that are no inference end. [gRPC threads]
#pragma once

#include <grpcpp/server_context.h>

#include <atomic>
#include <memory>
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

// Ends when its work is done, or before, when the caller or the stopping server loses patience:
// what was begun goes on.
class LateAnswer final : public grpc::ServerUnaryReactor,
                         public std::enable_shared_from_this<LateAnswer> {
 public:
  // Before it is handed to gRPC.
  void Start() { self_ = shared_from_this(); }
  // [any thread] The first outcome is the call's.
  void End(const Status& status) {
    if (!is_ended_.exchange(true)) Finish(ToGrpc(status));
  }

 private:
  void OnCancel() override {
    End(CancelledError("the call was given up; what it asked for goes on"));
  }
  void OnDone() override { self_.reset(); }

  std::atomic<bool> is_ended_{false};
  std::shared_ptr<LateAnswer> self_;  // until gRPC is through with it
};

// Runs `work`, which may block, on `queue`; then ends the call with its Status. `work` owns all
// that it needs: the call may be over before.
template <typename Work>
grpc::ServerUnaryReactor* AnswerLater(WorkQueue& queue, Work work) {
  const auto answer = std::make_shared<LateAnswer>();
  answer->Start();
  const auto shared_work = std::make_shared<Work>(std::move(work));
  const bool is_posted = queue.Post([answer, shared_work] { answer->End((*shared_work)()); });
  if (!is_posted) {
    answer->End(UnavailableError("too many calls that take long are waiting, try later"));
  }
  return answer.get();
}

// The message itself, which gRPC does not look at any more: what is copied may be as large as a
// model's files.
template <typename Message>
Message TakeMessage(const Message* message) {
  return std::move(*const_cast<Message*>(message));
}

}  // namespace nereid
