// How unary calls that are no inference are parsed and end.
#pragma once

#include <google/protobuf/message_lite.h>

#include <atomic>
#include <climits>
#include <memory>
#include <string>
#include <utility>

#include "host/frontend/grpc/call.h"
#include "host/frontend/grpc/work_queue.h"

namespace nereid {

// As gRPC has it for bytes that are no message of the expected type.
inline Status ParseMessage(const Slice& bytes, google::protobuf::MessageLite& message) {
  if (bytes.bytes.size() <= INT_MAX &&
      message.ParseFromArray(bytes.bytes.data(), static_cast<int>(bytes.bytes.size()))) {
    return {};
  }
  return InternalError("Unable to parse request");
}

inline WireMessage Serialize(const google::protobuf::MessageLite& message) {
  return WireMessage(Slice::Of(message.SerializeAsString()));
}

inline void AnswerNow(Call& call, const Status& status,
                      const google::protobuf::MessageLite& response) {
  if (status.ok()) {
    call.FinishWith(Serialize(response));
  } else {
    call.Finish(ToCallStatus(status));
  }
}

// Ends when its work is done, or before, when the caller or the stopping server loses patience:
// what was begun goes on.
class LateAnswer final : public CallHandler, public std::enable_shared_from_this<LateAnswer> {
 public:
  explicit LateAnswer(Call& call) : call_(call) {}
  // Before it is handed to the call.
  void Start() { self_ = shared_from_this(); }
  // [any thread] The first outcome is the call's.
  void End(const Status& status, const google::protobuf::MessageLite& response) {
    if (!is_ended_.exchange(true)) AnswerNow(call_, status, response);
  }
  void Refuse(const Status& status) {
    if (!is_ended_.exchange(true)) call_.Finish(ToCallStatus(status));
  }

 private:
  void OnCancel() override {
    Refuse(CancelledError("the call was given up; what it asked for goes on"));
  }
  void OnDone() override { self_.reset(); }

  Call& call_;  // dead once it is finished
  std::atomic<bool> is_ended_{false};
  std::shared_ptr<LateAnswer> self_;  // until the call is through with it
};

// Runs `work(response)`, which may block, on `queue`; then ends the call with its Status. `work`
// owns all that it needs: the call may be over before.
template <typename Response, typename Work>
CallHandler* AnswerLater(Call& call, WorkQueue& queue, Work work) {
  const auto answer = std::make_shared<LateAnswer>(call);
  answer->Start();
  const auto shared_work = std::make_shared<Work>(std::move(work));
  const bool is_posted = queue.Post([answer, shared_work] {
    Response response;
    const Status status = (*shared_work)(response);
    answer->End(status, response);
  });
  if (!is_posted) {
    answer->Refuse(UnavailableError("too many calls that take long are waiting, try later"));
  }
  return answer.get();
}

}  // namespace nereid
