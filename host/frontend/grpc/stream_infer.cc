// The ModelStreamInfer call, see infer_calls.h. Replies of models that are not decoupled are sent
// in the order of their requests; those of decoupled models are sent as they arrive.

#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_set>
#include <utility>
#include <vector>

#include "host/frontend/grpc/infer_context.h"
#include "host/frontend/grpc/service_calls.h"
#include "host/frontend/grpc/stream_request.h"
#include "host/frontend/model_demand.h"
#include "nereid/error.h"
#include "net/event_loop.h"

namespace nereid {
namespace {

constexpr char kStrictErrorsKey[] = "triton_grpc_error";

// At most one read and one write are pending. A reply is encoded after the previous one was
// written.
class StreamInfer final : public CallHandler,
                          public StreamReplySink,
                          public DrainableCall,
                          public std::enable_shared_from_this<StreamInfer> {
 public:
  StreamInfer(const InferContext& context, Call& call);

  // Called once, before the handler is returned to the transport.
  void Start() {
    self_ = shared_from_this();
    context_.drainable_calls().Add(self_);
    call_.Read();
  }

  void OnReply(StreamReply reply) override;
  void OnEndWithoutReply(const std::shared_ptr<StreamRequest>& request) override;
  void EndWhenIdle() override;

 private:
  using Requests = std::unordered_set<std::shared_ptr<StreamRequest>>;

  // [loop thread]
  void OnReadDone(const Slice* message) override;
  void OnWriteDone() override;
  void OnCancel() override;
  void OnDone() override {
    context_.drainable_calls().Remove(this);
    self_.reset();
  }

  // Parses one request message and submits it to the core, or replies with an error. False if it
  // first waits for its model: further messages are read after it has been submitted, so that the
  // order of the replies is that of the requests.
  bool Accept(const Slice& bytes);
  bool AwaitModel(ModelDemand& demand, const std::shared_ptr<StreamRequest>& request);
  void Begin(const std::shared_ptr<StreamRequest>& request,
             const Result<ModelDemand::Lease>& lease);
  void Begin(const std::shared_ptr<StreamRequest>& request);
  void FinishRead(bool is_last);
  void ReplyWithError(const std::shared_ptr<StreamRequest>& request, Status error);

  // All methods below require that `lock` holds mutex_.
  using Lock = std::unique_lock<std::mutex>;
  void Admit(const std::shared_ptr<StreamRequest>& request, const Lock& lock);
  void Enqueue(StreamReply reply, const Lock& lock);
  // Passes on a reply, or keeps it until those of earlier requests have ended.
  void Pass(StreamReply reply, const Lock& lock);
  // Ends the call, because a reply was lost for lack of memory.
  void EndForLackOfMemory(const Lock& lock) noexcept;
  void Retire(const std::shared_ptr<StreamRequest>& request, const Lock& lock);
  // The replies that the client has not read exceed the limit.
  bool is_full() const { return unsent_bytes_ > context_.options().max_unsent_bytes_per_stream; }
  // Makes the model of `request` wait until the client has read more.
  void Hold(const std::shared_ptr<StreamRequest>& request, const Lock& lock);
  // Lets the models that wait go on, if the client has read enough.
  void LetGo(const Lock& lock);
  // Drops unsent replies and ends the call with `status`. The caller must cancel the returned
  // requests.
  [[nodiscard]] Requests End(CallStatus status, const Lock& lock);
  void ReadMore(const Lock& lock);
  // While draining, ends the call once no request is in flight, even if the client has not closed
  // its side.
  void Drain(const Lock& lock);
  // Starts the next write or finishes the call, if possible. Releases the lock.
  void Advance(Lock& lock);
  static void Cancel(const Requests& requests);

  const InferContext& context_;
  Call& call_;  // must not be used after it is finished
  const ForwardedHeaders headers_;
  const bool has_strict_errors_;       // the first error ends the call with its status
  std::shared_ptr<StreamInfer> self_;  // until OnDone

  std::mutex mutex_;  // guards all below, and StreamRequest::stream_state
  Requests in_flight_;
  // Requests whose replies must keep their order, until they have ended.
  std::deque<std::shared_ptr<StreamRequest>> ordered_requests_;
  std::deque<StreamReply> send_queue_;
  size_t unsent_bytes_ = 0;  // of replies in send_queue_ and in queued_replies
  Requests held_;            // requests in flight whose models wait until the client has read more
  bool is_holding_ = false;  // as told to the call by SetFull
  bool is_reading_ = true;
  bool has_reads_ended_ = false;
  bool is_draining_ = false;
  bool is_writing_ = false;
  bool is_finished_ = false;
  std::optional<CallStatus> end_status_;  // if set, the call ends with it
};

bool HasStrictErrors(const Call& call) {
  const std::string_view* const found = call.FindMetadata(kStrictErrorsKey);
  return found != nullptr && *found == "true";
}

StreamInfer::StreamInfer(const InferContext& context, Call& call)
    : context_(context),
      call_(call),
      headers_(context.HeadersToForward(call)),
      has_strict_errors_(HasStrictErrors(call)) {}

void StreamInfer::OnReadDone(const Slice* message) {
  if (message == nullptr || Accept(*message)) FinishRead(/*is_last=*/message == nullptr);
}

void StreamInfer::FinishRead(bool is_last) {
  Lock lock(mutex_);
  is_reading_ = false;
  has_reads_ended_ = is_last;
  ReadMore(lock);
  Advance(lock);
}

void StreamInfer::ReadMore(const Lock&) {
  if (is_reading_ || has_reads_ended_ || is_finished_ || end_status_.has_value()) return;
  if (in_flight_.size() >= context_.options().max_requests_per_stream || is_full()) return;
  is_reading_ = true;
  call_.Read();
}

bool StreamInfer::Accept(const Slice& bytes) {
  auto request = std::make_shared<StreamRequest>(shared_from_this());
  const Status status = request->Parse(bytes, call_.budget());
  {
    Lock lock(mutex_);
    if (end_status_.has_value()) return true;
    std::optional<CallStatus> fault;
    if (!status.ok()) {
      fault = ToCallStatus(status);
    } else if (const auto denial = context_.CheckModel(call_, request->resources().message)) {
      fault = ToCallStatus(*denial);
    }
    if (fault) {
      const Requests cancelled = End(std::move(*fault), lock);
      lock.unlock();
      Cancel(cancelled);
      return true;
    }
  }
  if (ModelDemand* const demand = context_.DemandOf(request->model())) {
    return AwaitModel(*demand, request);
  }
  Begin(request);
  return true;
}

bool StreamInfer::AwaitModel(ModelDemand& demand, const std::shared_ptr<StreamRequest>& request) {
  {
    const Lock lock(mutex_);
    in_flight_.insert(request);  // so that the call does not end meanwhile
  }
  const auto on_ready = [self = shared_from_this(), request,
                         &loop = call_.loop()](Result<ModelDemand::Lease> lease) {
    loop.PostFunction([self, request, lease = std::move(lease)] {
      self->Begin(request, lease);
      self->FinishRead(/*is_last=*/false);
    });
  };
  const Result<ModelDemand::Lease> lease = demand.Use(request->model(), on_ready);
  if (lease.ok() && *lease == nullptr) return false;
  Begin(request, lease);
  return true;
}

void StreamInfer::Begin(const std::shared_ptr<StreamRequest>& request,
                        const Result<ModelDemand::Lease>& lease) {
  if (lease.ok()) {
    request->KeepLoaded(*lease);
    return Begin(request);
  }
  {
    const Lock lock(mutex_);
    if (end_status_.has_value()) return;
    Admit(request, lock);
  }
  ReplyWithError(request, lease.status());
}

void StreamInfer::Begin(const std::shared_ptr<StreamRequest>& request) {
  Status status = request->FindModel(context_);
  {
    const Lock lock(mutex_);
    if (end_status_.has_value()) return;
    Admit(request, lock);
  }
  if (status.ok())
    status = request->Submit(context_, headers_,
                             context_.SampleTrace(call_, request->resources().message));
  if (!status.ok()) {
    LogInferFailed(request->id(), status);
    return ReplyWithError(request, std::move(status));
  }
  bool is_too_late;
  {
    const Lock lock(mutex_);
    request->stream_state.may_cancel = true;
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
  if (request->is_ordered()) ordered_requests_.push_back(request);
}

void StreamInfer::OnReply(StreamReply reply) {
  Lock lock(mutex_);
  const std::shared_ptr<StreamRequest> request = reply.request;
  if (request->stream_state.has_ended) return;  // the backend responds after its final response
  const bool is_final = reply.is_final;
  const bool is_first = !std::exchange(request->stream_state.has_reply, true);
  if (request->is_ordered() && !is_first && !reply.response.empty() && reply.Error().ok()) {
    // The model is not decoupled, so only the first response counts. A further one is dropped; if
    // the client requested an empty final response, that is still sent.
    if (!is_final || !request->enable_empty_final()) {
      if (is_final) Retire(request, lock);
      return Advance(lock);
    }
    reply.response = InferResponse();
  }
  if (!end_status_.has_value()) {
    try {
      Pass(std::move(reply), lock);
    } catch (const std::bad_alloc&) {
      EndForLackOfMemory(lock);
    }
  }
  if (is_final) Retire(request, lock);
  Advance(lock);
}

void StreamInfer::Pass(StreamReply reply, const Lock& lock) {
  const std::shared_ptr<StreamRequest> request = reply.request;
  const bool is_final = reply.is_final;
  unsent_bytes_ += reply.size_bytes;
  if (request->is_ordered() && ordered_requests_.front() != request) {
    request->stream_state.queued_replies.push_back(std::move(reply));
  } else {
    Enqueue(std::move(reply), lock);
  }
  if (!is_final && is_full()) Hold(request, lock);
}

void StreamInfer::EndForLackOfMemory(const Lock&) noexcept {
  end_status_ = ResponseWithoutMemory();
  send_queue_.clear();
  for (const auto& request : ordered_requests_) request->stream_state.queued_replies.clear();
  unsent_bytes_ = 0;
  call_.Abort();  // OnCancel cancels the requests
}

void StreamInfer::Hold(const std::shared_ptr<StreamRequest>& request, const Lock&) {
  if (!held_.insert(request).second) return;
  request->SetRoom(false);
  if (!std::exchange(is_holding_, true)) call_.SetFull(true);
}

void StreamInfer::LetGo(const Lock& lock) {
  if (is_full()) return;
  ReadMore(lock);
  for (const auto& request : held_) request->SetRoom(true);
  held_.clear();
  if (std::exchange(is_holding_, false) && !is_finished_) call_.SetFull(false);
}

void StreamInfer::OnEndWithoutReply(const std::shared_ptr<StreamRequest>& request) {
  Lock lock(mutex_);
  Retire(request, lock);
  Advance(lock);
}

void StreamInfer::Enqueue(StreamReply reply, const Lock&) {
  send_queue_.push_back(std::move(reply));
}

void StreamInfer::Drain(const Lock&) {
  if (!is_draining_ || has_reads_ended_ || !in_flight_.empty() || end_status_.has_value()) return;
  if (send_queue_.empty()) end_status_ = {GrpcCode::kUnavailable, "the server is stopping"};
}

void StreamInfer::Retire(const std::shared_ptr<StreamRequest>& request, const Lock& lock) {
  in_flight_.erase(request);
  held_.erase(request);
  request->stream_state.has_ended = true;
  // The next ordered request may now send its queued replies.
  while (!ordered_requests_.empty() && ordered_requests_.front()->stream_state.has_ended) {
    ordered_requests_.pop_front();
    if (ordered_requests_.empty()) break;
    for (StreamReply& reply : ordered_requests_.front()->stream_state.queued_replies)
      Enqueue(std::move(reply), lock);
    ordered_requests_.front()->stream_state.queued_replies.clear();
  }
  ReadMore(lock);
}

StreamInfer::Requests StreamInfer::End(CallStatus status, const Lock& lock) {
  if (!end_status_.has_value()) end_status_ = std::move(status);
  send_queue_.clear();
  for (const auto& request : ordered_requests_) request->stream_state.queued_replies.clear();
  unsent_bytes_ = 0;
  LetGo(lock);
  Requests to_cancel;
  for (const auto& request : in_flight_) {
    if (request->stream_state.may_cancel) to_cancel.insert(request);
  }
  return to_cancel;
}

void StreamInfer::Cancel(const Requests& requests) {
  for (const auto& request : requests) request->Cancel();
}

void StreamInfer::Advance(Lock& lock) {
  Requests cancelled;
  Drain(lock);
  if (!is_writing_ && !is_finished_ && has_strict_errors_ && !send_queue_.empty()) {
    if (const Status error = send_queue_.front().Error(); !error.ok()) {
      cancelled = End(ToCallStatus(error), lock);
    }
  }
  if (is_writing_ || is_finished_) {
    lock.unlock();
  } else if (!send_queue_.empty()) {
    const StreamReply reply = std::move(send_queue_.front());
    send_queue_.pop_front();
    unsent_bytes_ -= reply.size_bytes;
    is_writing_ = true;  // prevents Finish while the lock is released
    LetGo(lock);
    lock.unlock();
    try {
      call_.Write(reply.Encode());
    } catch (const std::bad_alloc&) {
      lock.lock();
      is_writing_ = false;
      EndForLackOfMemory(lock);
    }
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
