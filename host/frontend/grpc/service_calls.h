// What every service of this endpoint does with a call that is not an inference call: check access,
// parse the request and answer. [loop threads]
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "host/frontend/access_control.h"
#include "host/frontend/grpc/call.h"
#include "host/frontend/grpc/work_queue.h"
#include "nereid/status.h"

namespace google::protobuf {
class Message;
class MessageLite;
}  // namespace google::protobuf

namespace nereid {

// A call as AccessControl sees it.
class CallCaller final : public ApiCaller {
 public:
  explicit CallCaller(const Call& call) : call_(call) {}
  std::string_view FindHeader(std::string_view name) const override;
  bool IsPeerLocal() const override { return call_.IsPeerLocal(); }

 private:
  const Call& call_;
};

// Both return false after they have finished a call that is not permitted. Authenticate is called
// before the call's message is parsed, Authorize afterwards; `model` is the one that the message
// names.
bool Authenticate(const AccessControl& access, Call& call, ApiOperation operation);
bool Authorize(const AccessControl& access, Call& call, ApiOperation operation,
               std::string_view model);

// The status of a call that is not permitted.
CallStatus ToCallStatus(const Denial& denial);

// Parses `bytes` into `message`. INTERNAL with gRPC's own text if they are not a message of that
// type.
Status ParseMessage(const Slice& bytes, google::protobuf::MessageLite& message);

WireMessage Serialize(const google::protobuf::MessageLite& message);

// Converts the core's JSON to a message with the same field names. Unknown fields are skipped.
// INTERNAL names the message type if `json` does not match it.
Status JsonToProto(std::string_view json, google::protobuf::Message& message);

// Finishes the call with `response`, or with `status` if that is an error.
void RespondNow(Call& call, const Status& status, const google::protobuf::MessageLite& response);

// Handler of a unary call whose work runs on a WorkQueue. The call ends when the work is done, or
// earlier when the client cancels or the server stops. The work itself is not cancelled: it runs to
// its end.
class QueuedCall final : public CallHandler, public std::enable_shared_from_this<QueuedCall> {
 public:
  explicit QueuedCall(Call& call) : call_(call) {}
  // Called once, before the handler is returned to the transport.
  void Start() { self_ = shared_from_this(); }
  // [any thread] Only the first outcome is sent; later ones are dropped.
  void End(const Status& status, const google::protobuf::MessageLite& response) {
    if (!is_ended_.exchange(true)) RespondNow(call_, status, response);
  }
  void Reject(const Status& status) {
    if (!is_ended_.exchange(true)) call_.Finish(ToCallStatus(status));
  }

 private:
  void OnCancel() override {
    Reject(CancelledError("the call was cancelled; the operation it started continues"));
  }
  void OnDone() override { self_.reset(); }

  Call& call_;  // must not be used after it is finished
  std::atomic<bool> is_ended_{false};
  std::shared_ptr<QueuedCall> self_;  // reference to itself until OnDone
};

// Runs `work(response)`, which may block, on `queue`, then finishes the call with the returned
// Status. `work` must own all data that it uses, because the call may end before the work does.
// UNAVAILABLE if the queue is full.
template <typename Response, typename Work>
CallHandler* RespondFromQueue(Call& call, WorkQueue& queue, Work work) {
  const auto answer = std::make_shared<QueuedCall>(call);
  answer->Start();
  const auto shared_work = std::make_shared<Work>(std::move(work));
  const bool is_posted = queue.Post([answer, shared_work] {
    Response response;
    const Status status = (*shared_work)(response);
    answer->End(status, response);
  });
  if (!is_posted) {
    answer->Reject(UnavailableError("the queue of long-running calls is full, try again later"));
  }
  return answer.get();
}

}  // namespace nereid
