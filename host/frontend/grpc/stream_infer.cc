// See stream_infer.h. Replies of models with one response a request leave in the order of the
// requests; those of decoupled models leave as they come.
#include "host/frontend/grpc/stream_infer.h"

#include <deque>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>
#include <vector>

#include "host/frontend/grpc/infer_failed.h"
#include "host/frontend/grpc/stream_request.h"
#include "nereid/error.h"

namespace nereid {
namespace {

constexpr char kStrictErrorsKey[] = "triton_grpc_error";

// At most one read and one write are under way; the write's bytes leave before the next is encoded.
class StreamInfer final : public CallHandler,
                          public StreamReplySink,
                          public LongCall,
                          public std::enable_shared_from_this<StreamInfer> {
 public:
  StreamInfer(const InferContext& context, Call& call);

  // Once, before the handler is handed to the call.
  void Start() {
    self_ = shared_from_this();
    context_.long_calls().Add(self_);
    call_.Read();
  }

  void OnReply(StreamReply reply) override;
  void OnSilentEnd(const std::shared_ptr<StreamRequest>& request) override;
  void EndWhenIdle() override;

 private:
  using Requests = std::unordered_set<std::shared_ptr<StreamRequest>>;

  // [loop thread]
  void OnReadDone(const Slice* message) override;
  void OnWriteDone() override;
  void OnCancel() override;
  void OnDone() override {
    context_.long_calls().Remove(this);
    self_.reset();
  }

  // Takes one message off the wire to the core, or answers with an error.
  void Accept(const Slice& bytes);
  void ReplyWithError(const std::shared_ptr<StreamRequest>& request, Status error);

  // All below require mutex_ to be held by `lock`.
  using Lock = std::unique_lock<std::mutex>;
  void Admit(const std::shared_ptr<StreamRequest>& request, const Lock& lock);
  void Enqueue(StreamReply reply, const Lock& lock);
  void Retire(const std::shared_ptr<StreamRequest>& request, const Lock& lock);
  // No reply leaves any more, the call ends with `status`; the caller cancels what is returned.
  [[nodiscard]] Requests End(CallStatus status, const Lock& lock);
  void ReadMore(const Lock& lock);
  // A stopping server waits for requests, not for clients to send more of them.
  void Drain(const Lock& lock);
  // Starts what can be started: a write, or the end of the call. Unlocks.
  void Advance(Lock& lock);
  static void Cancel(const Requests& requests);

  const InferContext& context_;
  Call& call_;  // dead once it is finished
  const ForwardedHeaders headers_;
  const bool has_strict_errors_;       // an error ends the call with its status
  std::shared_ptr<StreamInfer> self_;  // until OnDone

  std::mutex mutex_;  // guards all below, and StreamRequest::place
  Requests in_flight_;
  std::deque<std::shared_ptr<StreamRequest>> order_;  // ordered requests, until they have ended
  std::deque<StreamReply> outbox_;
  size_t unsent_bytes_ = 0;  // of replies in outbox_ and held
  bool is_reading_ = true;
  bool has_reads_ended_ = false;
  bool is_draining_ = false;
  bool is_writing_ = false;
  bool is_finished_ = false;
  std::optional<CallStatus> end_status_;  // set: the call is to end with it
};

bool WantsStrictErrors(const Call& call) {
  const std::string_view* const found = call.FindMetadata(kStrictErrorsKey);
  return found != nullptr && *found == "true";
}

StreamInfer::StreamInfer(const InferContext& context, Call& call)
    : context_(context),
      call_(call),
      headers_(context.HeadersToForward(call)),
      has_strict_errors_(WantsStrictErrors(call)) {}

void StreamInfer::OnReadDone(const Slice* message) {
  if (message != nullptr) Accept(*message);
  Lock lock(mutex_);
  is_reading_ = false;
  has_reads_ended_ = message == nullptr;
  ReadMore(lock);
  Advance(lock);
}

void StreamInfer::ReadMore(const Lock&) {
  if (is_reading_ || has_reads_ended_ || is_finished_ || end_status_.has_value()) return;
  if (in_flight_.size() >= context_.options().max_requests_per_stream) return;
  is_reading_ = true;
  call_.Read();
}

void StreamInfer::Accept(const Slice& bytes) {
  auto request = std::make_shared<StreamRequest>(shared_from_this());
  Status status = request->Prepare(context_, bytes);
  {
    Lock lock(mutex_);
    if (end_status_.has_value()) return;
    if (!request->is_parsed()) {
      const Requests cancelled = End(ToCallStatus(status), lock);
      lock.unlock();
      return Cancel(cancelled);
    }
    Admit(request, lock);
  }
  if (status.ok())
    status =
        request->Submit(context_, headers_, context_.SampleTrace(call_, request->parts().message));
  if (!status.ok()) {
    LogInferFailed(request->id(), status);
    return ReplyWithError(request, std::move(status));
  }
  bool is_too_late;
  {
    const Lock lock(mutex_);
    request->place.may_cancel = true;
    is_too_late = end_status_.has_value();
  }
  if (is_too_late) request->Cancel();
}

void StreamInfer::ReplyWithError(const std::shared_ptr<StreamRequest>& request, Status error) {
  const size_t size_bytes = error.message().size();
  OnReply({request, std::move(error), InferResponse(), /*is_final=*/true, size_bytes});
}

void StreamInfer::Admit(const std::shared_ptr<StreamRequest>& request, const Lock&) {
  in_flight_.insert(request);
  if (request->is_ordered()) order_.push_back(request);
}

void StreamInfer::OnReply(StreamReply reply) {
  Lock lock(mutex_);
  const std::shared_ptr<StreamRequest> request = reply.request;
  if (request->place.has_ended) return;  // a backend that goes on after its final response
  const bool is_final = reply.is_final;
  const bool is_first = !std::exchange(request->place.has_reply, true);
  if (request->is_ordered() && !is_first && !reply.response.empty() && reply.Error().ok()) {
    // The model promised one response: the first is the request's. Of another one only the end is
    // told, to whoever waits for it.
    if (!is_final || !request->wants_empty_final()) {
      if (is_final) Retire(request, lock);
      return Advance(lock);
    }
    reply.response = InferResponse();
  }
  Requests cancelled;
  if (!end_status_.has_value()) {
    unsent_bytes_ += reply.size_bytes;
    if (unsent_bytes_ > context_.options().max_unsent_bytes_per_stream) {
      cancelled = End({GrpcCode::kResourceExhausted, "the client reads too slowly"}, lock);
      call_.Abort();  // the write under way may never end by itself
    } else if (request->is_ordered() && order_.front() != request) {
      request->place.held.push_back(std::move(reply));
    } else {
      Enqueue(std::move(reply), lock);
    }
  }
  if (is_final) Retire(request, lock);
  Advance(lock);
  Cancel(cancelled);
}

void StreamInfer::OnSilentEnd(const std::shared_ptr<StreamRequest>& request) {
  Lock lock(mutex_);
  Retire(request, lock);
  Advance(lock);
}

void StreamInfer::Enqueue(StreamReply reply, const Lock&) {
  outbox_.push_back(std::move(reply));
}

void StreamInfer::Drain(const Lock&) {
  if (!is_draining_ || has_reads_ended_ || !in_flight_.empty() || end_status_.has_value()) return;
  if (outbox_.empty()) end_status_ = {GrpcCode::kUnavailable, "the server is stopping"};
}

void StreamInfer::Retire(const std::shared_ptr<StreamRequest>& request, const Lock& lock) {
  in_flight_.erase(request);
  request->place.has_ended = true;
  // The requests behind it in order may speak now.
  while (!order_.empty() && order_.front()->place.has_ended) {
    order_.pop_front();
    if (order_.empty()) break;
    for (StreamReply& reply : order_.front()->place.held) Enqueue(std::move(reply), lock);
    order_.front()->place.held.clear();
  }
  ReadMore(lock);
}

StreamInfer::Requests StreamInfer::End(CallStatus status, const Lock&) {
  if (!end_status_.has_value()) end_status_ = std::move(status);
  outbox_.clear();
  for (const auto& request : order_) request->place.held.clear();
  unsent_bytes_ = 0;
  Requests to_cancel;
  for (const auto& request : in_flight_) {
    if (request->place.may_cancel) to_cancel.insert(request);
  }
  return to_cancel;
}

void StreamInfer::Cancel(const Requests& requests) {
  for (const auto& request : requests) request->Cancel();
}

void StreamInfer::Advance(Lock& lock) {
  Requests cancelled;
  Drain(lock);
  if (!is_writing_ && !is_finished_ && has_strict_errors_ && !outbox_.empty()) {
    if (const Status error = outbox_.front().Error(); !error.ok()) {
      cancelled = End(ToCallStatus(error), lock);
    }
  }
  if (is_writing_ || is_finished_) {
    lock.unlock();
  } else if (!outbox_.empty()) {
    const StreamReply reply = std::move(outbox_.front());
    outbox_.pop_front();
    unsent_bytes_ -= reply.size_bytes;
    is_writing_ = true;  // keeps the call from its end while the lock is free
    lock.unlock();
    call_.Write(reply.Encode());
  } else if (end_status_.has_value() || (has_reads_ended_ && in_flight_.empty())) {
    is_finished_ = true;
    const CallStatus status = end_status_.value_or(CallStatus());
    lock.unlock();
    call_.Finish(status);
  } else {
    lock.unlock();
  }
  Cancel(cancelled);
}

void StreamInfer::EndWhenIdle() {
  Lock lock(mutex_);
  is_draining_ = true;
  Advance(lock);
}

void StreamInfer::OnWriteDone() {
  Lock lock(mutex_);
  is_writing_ = false;
  Advance(lock);
}

void StreamInfer::OnCancel() {
  Lock lock(mutex_);
  const Requests cancelled = End({GrpcCode::kCancelled, "the client cancelled the call"}, lock);
  Advance(lock);
  Cancel(cancelled);
}

}  // namespace

CallHandler* StartStreamInfer(const InferContext& context, Call& call) {
  const auto stream = std::make_shared<StreamInfer>(context, call);
  stream->Start();
  return stream.get();
}

}  // namespace nereid
