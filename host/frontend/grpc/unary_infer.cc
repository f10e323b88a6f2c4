// The ModelInfer call. See infer_calls.h.

#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "host/frontend/grpc/infer_context.h"
#include "host/frontend/grpc/infer_response_encoder.h"
#include "host/frontend/grpc/service_calls.h"
#include "host/frontend/model_demand.h"
#include "net/event_loop.h"

namespace nereid {
namespace {

// Deletes itself when the call is done and the core has returned the request and its final
// response.
class UnaryInfer final : public CallHandler, public InferObserver {
 public:
  UnaryInfer(const InferContext& context, Call& call) : context_(context), call_(call) {}
  ~UnaryInfer() { StopWaiting(); }

  // [loop thread] Neither OnCancel nor OnDone is called during it.
  void Start(const Slice& request) {
    Status status = WithoutBadAlloc(
        request.bytes.size(), [&] { return resources_.message.Parse(request, call_.budget()); });
    if (status.ok()) {
      const std::optional<Denial> denial = context_.CheckModel(call_, resources_.message);
      if (denial) return FinishOnce(ToCallStatus(*denial));
      const std::string& model = resources_.message.message().model_name();
      if (ModelDemand* const demand = context_.DemandOf(model)) return AwaitModel(*demand, model);
      status = WithoutBadAlloc(request.bytes.size(), [&] { return Submit(); });
    }
    if (!status.ok()) FinishOnce(status);
  }

  void OnResponse(InferResponse response, bool is_final) noexcept override;
  void OnRelease(InferRequest request) noexcept override {
    request_.emplace(std::move(request));
    Unref();
  }

 private:
  // [loop thread] Requires a parsed message.
  void AwaitModel(ModelDemand& demand, const std::string& model);
  void OnModelReady(const Result<ModelDemand::Lease>& lease);
  void StopWaiting() {
    if (waiting_ != nullptr) *std::exchange(waiting_, nullptr) = nullptr;
  }
  // Requires a parsed message.
  Status Submit();
  void FinishWithOnly(InferResponse response);
  // Only the first outcome is sent; later ones are dropped.
  void FinishOnce(const Status& status) { FinishOnce(ToCallStatus(status)); }
  void FinishOnce(CallStatus status) {
    if (ClaimFinish()) call_.Finish(std::move(status));
  }
  void FinishOnce(WireMessage response);
  bool ClaimFinish() { return !is_finished_.exchange(true, std::memory_order_acq_rel); }

  // [loop thread]
  void OnCancel() override;
  void OnDone() override {
    RecordTraceEvent(trace_, "GRPC_SEND_END");
    Unref();
  }

  void Unref() {
    if (num_refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  const InferContext& context_;
  Call& call_;  // must not be used after it is finished
  RequestResources resources_;
  // Where the demand's answer finds this object, until it comes. [loop thread]
  std::shared_ptr<UnaryInfer*> waiting_;
  ModelDemand::Lease lease_;  // of a model that is loaded on demand
  TracedRequest trace_;       // null if the request is not traced
  // One for the call; while in flight, one each for the final response and the release.
  std::atomic<int> num_refs_{1};
  std::atomic<bool> is_finished_{false};
  std::atomic<size_t> num_responses_{0};
  // A response that arrived before the final flag. It must be the only one.
  InferResponse pending_response_;
  TRITONSERVER_InferenceRequest* in_flight_ = nullptr;  // set before the request is submitted
  // Set on release; kept because OnCancel may still cancel it.
  std::optional<InferRequest> request_;
};

void UnaryInfer::AwaitModel(ModelDemand& demand, const std::string& model) {
  waiting_ = std::make_shared<UnaryInfer*>(this);
  const auto on_ready = [waiting = waiting_,
                         &loop = call_.loop()](Result<ModelDemand::Lease> lease) {
    loop.PostFunction([waiting, lease = std::move(lease)] {
      if (*waiting != nullptr) (*waiting)->OnModelReady(lease);
    });
  };
  const Result<ModelDemand::Lease> lease = demand.Use(model, on_ready);
  if (!lease.ok() || *lease != nullptr) OnModelReady(lease);
}

void UnaryInfer::OnModelReady(const Result<ModelDemand::Lease>& lease) {
  StopWaiting();
  if (!lease.ok()) return FinishOnce(lease.status());
  lease_ = *lease;
  const Status status = WithoutBadAlloc(resources_.message.size_bytes(), [&] { return Submit(); });
  if (!status.ok()) FinishOnce(status);
}

Status UnaryInfer::Submit() {
  NEREID_RETURN_IF_ERROR(context_.FindModel(resources_));
  if (resources_.is_decoupled) {
    return UnsupportedError(
        "ModelInfer RPC doesn't support models with decoupled transaction policy");
  }
  NEREID_ASSIGN_OR_RETURN(InferRequest request,
                          context_.MakeRequest(resources_, context_.HeadersToForward(call_)));
  NEREID_RETURN_IF_ERROR(request.SetCallbacks(this, context_.allocator(), &resources_.outputs));
  in_flight_ = request.get();
  num_refs_.store(3, std::memory_order_relaxed);
  trace_ = context_.SampleTrace(call_, resources_.message);
  TRITONSERVER_InferenceTrace* const core_trace = MakeCoreTrace(trace_);
  const Status status = context_.server().InferAsync(std::move(request), core_trace);
  if (!status.ok()) {
    LogInferFailed(resources_.message.message().id(), status);
    in_flight_ = nullptr;
    num_refs_.store(1, std::memory_order_relaxed);
  }
  return status;
}

void UnaryInfer::OnResponse(InferResponse response, bool is_final) noexcept {
  const size_t number = response.empty() ? 0 : ++num_responses_;
  if (number == 1) RecordTraceEvent(trace_, "INFER_RESPONSE_COMPLETE");
  if (!is_final) {
    if (number == 1) pending_response_ = std::move(response);
    return;
  }
  resources_.ReleaseSharedRegions();
  try {
    if (num_responses_ != 1) {
      FinishOnce(InternalError("expected a single response, got ", num_responses_.load()));
    } else {
      FinishWithOnly(response.empty() ? std::move(pending_response_) : std::move(response));
    }
  } catch (const std::bad_alloc&) {
    FinishOnce(ResponseWithoutMemory());
  }
  Unref();
}

void UnaryInfer::FinishWithOnly(InferResponse response) {
  const Status shared = resources_.CheckSharedRegions();
  Result<WireMessage> bytes = shared.ok() ? EncodeUnaryResponse(response, resources_) : shared;
  response = InferResponse();  // releases its memory before the client receives the response
  if (bytes.ok()) {
    FinishOnce(std::move(bytes).value());
  } else {
    FinishOnce(bytes.status());
  }
}

void UnaryInfer::FinishOnce(WireMessage response) {
  if (!ClaimFinish()) return;
  RecordTraceEvent(trace_, "GRPC_SEND_START");
  try {
    call_.FinishWith(std::move(response));
  } catch (const std::bad_alloc&) {  // FinishWith has then done nothing
    call_.Finish(ResponseWithoutMemory());
  }
}

void UnaryInfer::OnCancel() {
  StopWaiting();
  if (in_flight_ != nullptr) (void)InferRequest::Cancel(in_flight_);
  FinishOnce(CancelledError("the client cancelled the call, or its deadline passed"));
}

}  // namespace

CallHandler* StartUnaryInfer(const InferContext& context, Call& call, const Slice& request) {
  auto* infer = new UnaryInfer(context, call);
  infer->Start(request);
  return infer;
}

}  // namespace nereid
