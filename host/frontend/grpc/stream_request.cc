// See stream_request.h.
#include "host/frontend/grpc/stream_request.h"

#include <utility>

#include "host/frontend/grpc/infer_response_encoder.h"

namespace nereid {
namespace {

// Estimated memory of a reply besides its outputs.
constexpr size_t kReplyOverheadBytes = 512;

}  // namespace

Status StreamReply::Error() const {
  if (!error.ok() || response.empty()) return error;
  return response.Error();
}

WireMessage StreamReply::Encode() const {
  const RequestResources& resources = request->resources();
  const std::string no_model;
  const std::string& model = request->was_submitted() ? request->model() : no_model;
  if (!error.ok()) return EncodeStreamError(error, model, request->id(), is_final);
  if (response.empty()) return EncodeEmptyFinal(model, request->id());
  Result<WireMessage> bytes = EncodeStreamResponse(response, resources, is_final);
  if (bytes.ok()) return std::move(bytes).value();
  return EncodeStreamError(bytes.status(), model, request->id(), is_final);
}

Status StreamRequest::Parse(const Slice& bytes, ByteBudget* budget) {
  NEREID_RETURN_IF_ERROR(
      WithoutBadAlloc(bytes.bytes.size(), [&] { return resources_.message.Parse(bytes, budget); }));
  is_parsed_ = true;
  return {};
}

Status StreamRequest::Submit(const InferContext& context, const ForwardedHeaders& headers,
                             TracedRequest trace) {
  InferRequest request(nullptr);
  const auto make = [&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(request, context.MakeRequest(resources_, headers));
    return {};
  };
  NEREID_RETURN_IF_ERROR(WithoutBadAlloc(resources_.message.size_bytes(), make));
  NEREID_RETURN_IF_ERROR(request.SetCallbacks(this, context.allocator(), &resources_.outputs));
  in_flight_ = request.get();
  was_submitted_ = true;
  num_core_refs_ = 2;
  self_ = shared_from_this();
  trace_ = std::move(trace);
  TRITONSERVER_InferenceTrace* const core_trace = MakeCoreTrace(trace_);
  const Status status = context.server().InferAsync(std::move(request), core_trace);
  if (!status.ok()) {
    was_submitted_ = false;
    self_.reset();
  }
  return status;
}

void StreamRequest::OnResponse(InferResponse response, bool is_final) noexcept {
  if (is_final) resources_.ReleaseSharedRegions();
  if (!std::exchange(has_answered_, true)) RecordTraceEvent(trace_, "INFER_RESPONSE_COMPLETE");
  const bool wants_reply = !response.empty() || resources_.response_options.enable_empty_final;
  if (wants_reply) {
    const size_t size_bytes =
        resources_.outputs.num_allocated.exchange(0, std::memory_order_relaxed) +
        kReplyOverheadBytes;
    Status shared = response.empty() ? Status() : resources_.CheckSharedRegions();
    sink_->OnReply(
        {shared_from_this(), std::move(shared), std::move(response), is_final, size_bytes});
  } else if (is_final) {
    sink_->OnEndWithoutReply(shared_from_this());
  }
  if (is_final) ReleaseCoreRef();
}

void StreamRequest::OnRelease(InferRequest request) noexcept {
  request_.emplace(std::move(request));
  ReleaseCoreRef();
}

void StreamRequest::ReleaseCoreRef() {
  if (num_core_refs_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::shared_ptr<StreamRequest> last = std::move(self_);
}

}  // namespace nereid
