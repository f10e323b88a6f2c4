// See unary_infer.h.
#include "unary_infer.h"

#include <atomic>
#include <optional>

#include "infer_response_encoder.h"
#include "status_code.h"

namespace nereid {
namespace {

// Dies when the call is done and the request came back with its final response.
class UnaryInfer final : public grpc::ServerUnaryReactor, public InferObserver {
 public:
  UnaryInfer(const InferContext& context, grpc::ByteBuffer& response)
      : context_(context), response_(response) {}

  // [gRPC thread] Before the reactor is handed to gRPC: no OnCancel or OnDone comes meanwhile.
  void Start(const grpc::CallbackServerContext& call, const grpc::ByteBuffer& request) {
    if (const Status status = Submit(call, request); !status.ok()) FinishOnce(status);
  }

  void OnResponse(InferResponse response, bool is_final) noexcept override;
  void OnRelease(InferRequest request) noexcept override {
    request_.emplace(std::move(request));
    Unref();
  }

 private:
  Status Submit(const grpc::CallbackServerContext& call, const grpc::ByteBuffer& request);
  // The first outcome is the call's; later ones are dropped.
  void FinishOnce(const Status& status);
  void FinishOnce(grpc::ByteBuffer response);
  bool ClaimFinish() { return !is_finished_.exchange(true, std::memory_order_acq_rel); }

  // [gRPC thread]
  void OnCancel() override;
  void OnDone() override {
    NoteTrace(trace_, "GRPC_SEND_END");
    Unref();
  }
  // Deleting the call is all that OnDone may do, so it needs no thread hop.
  bool InternalInlineable() override { return true; }

  void Unref() {
    if (num_refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  const InferContext& context_;
  grpc::ByteBuffer& response_;  // gRPC's; dead once the call is finished
  InferParts parts_;
  TracedRequest trace_;  // empty when the request is not traced
  std::atomic<int> num_refs_{
      1};  // gRPC's own; in flight, one for the response and one for the release
  std::atomic<bool> is_finished_{false};
  TRITONSERVER_InferenceRequest* in_flight_ = nullptr;  // set before the reactor is handed over
  std::optional<InferRequest>
      request_;  // after its release; kept so that it may still be cancelled
};

Status UnaryInfer::Submit(const grpc::CallbackServerContext& call,
                          const grpc::ByteBuffer& request_bytes) {
  NEREID_RETURN_IF_ERROR(parts_.message.Parse(request_bytes));
  NEREID_RETURN_IF_ERROR(context_.FindModel(parts_));
  if (parts_.is_decoupled) {
    return UnsupportedError(
        "ModelInfer RPC doesn't support models with decoupled transaction policy");
  }
  NEREID_ASSIGN_OR_RETURN(InferRequest request,
                          context_.MakeRequest(parts_, context_.HeadersToForward(call)));
  NEREID_RETURN_IF_ERROR(request.SetCallbacks(this, context_.allocator(), &parts_.outputs));
  in_flight_ = request.get();
  num_refs_.store(3, std::memory_order_relaxed);
  trace_ = context_.SampleTrace(call, parts_.message);
  TRITONSERVER_InferenceTrace* const core_trace = MakeCoreTrace(trace_);
  const Status status = context_.server().InferAsync(std::move(request), core_trace);
  if (!status.ok()) {
    DropCoreTrace(core_trace, trace_);
    in_flight_ = nullptr;
    num_refs_.store(1, std::memory_order_relaxed);
  }
  return status;
}

void UnaryInfer::OnResponse(InferResponse response, bool is_final) noexcept {
  if (!response.empty()) {
    Result<grpc::ByteBuffer> bytes = EncodeUnaryResponse(response, parts_);
    response = InferResponse();  // before the client hears, so that its memory is free by then
    if (bytes.ok()) {
      FinishOnce(std::move(bytes).value());
    } else {
      FinishOnce(bytes.status());
    }
  } else if (is_final) {
    FinishOnce(InternalError("model '", parts_.message.message().model_name(),
                             "' ended the request without a response"));
  }
  if (is_final) Unref();
}

void UnaryInfer::FinishOnce(const Status& status) {
  if (ClaimFinish()) Finish(ToGrpc(status));
}

void UnaryInfer::FinishOnce(grpc::ByteBuffer response) {
  if (!ClaimFinish()) return;
  NoteTrace(trace_, "GRPC_SEND_START");
  response_.Swap(&response);
  Finish(grpc::Status::OK);
}

void UnaryInfer::OnCancel() {
  if (in_flight_ != nullptr) (void)InferRequest::Cancel(in_flight_);
  FinishOnce(CancelledError("the client cancelled the call, or its deadline passed"));
}

}  // namespace

grpc::ServerUnaryReactor* StartUnaryInfer(const InferContext& context,
                                          const grpc::CallbackServerContext& call,
                                          const grpc::ByteBuffer& request,
                                          grpc::ByteBuffer& response) {
  auto* infer = new UnaryInfer(context, response);
  infer->Start(call, request);
  return infer;
}

}  // namespace nereid
