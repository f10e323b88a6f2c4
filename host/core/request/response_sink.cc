#include "host/core/request/response_sink.h"

#include "host/core/observe/trace.h"
#include "host/core/request/failed_request_log.h"
#include "host/core/request/infer_response.h"
#include "host/core/request/trace_tensors.h"

namespace nereid::core {
namespace {

bool IsClientError(const Status& error) {
  return error.code() == StatusCode::kInvalidArg || error.code() == StatusCode::kUnsupported;
}

}  // namespace

ResponseSink::ResponseSink(std::shared_ptr<RequestTarget> target, std::string request_id,
                           const ResponseCallbacks& callbacks)
    : target_(std::move(target)), request_id_(std::move(request_id)), callbacks_(callbacks) {}

ResponseSink::~ResponseSink() {
  if (room_source_ != nullptr) room_source_->Release();
}

void ResponseSink::SetRoomSource(ResponseSink* source) {
  source->AddRef();
  room_source_ = source;
  room_.SetSource(&source->room_);
}

void ResponseSink::Release() {
  if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void ResponseSink::DropSender() {
  if (senders_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (!final_sent_.exchange(true, std::memory_order_acq_rel)) SendMissingFinal();
  if (trace_ != nullptr) std::exchange(trace_, nullptr)->End();
}

void ResponseSink::SendMissingFinal() {
  auto error = InferResponse::NewError(
      this, InternalError("model '", schema().model_name, "' version ", schema().model_version,
                          " finished the request without sending a final response"));
  target_->statistics().host().RecordFailure(FailureReason::kBackend, 0);
  if (logs_failures_) LogFailedRequest(schema().model_name, request_id_, error->error());
  error->MarkSent();
  Deliver(error.release(), TRITONSERVER_RESPONSE_COMPLETE_FINAL);
  senders_.fetch_sub(1, std::memory_order_relaxed);
}

Status ResponseSink::Send(InferResponse* response, uint32_t flags) {
  AddRef();  // the client may delete the response, and with it a reference, during the delivery
  const bool is_final = (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
  const bool too_late = is_final ? final_sent_.exchange(true, std::memory_order_acq_rel)
                                 : final_sent_.load(std::memory_order_acquire);
  if (response != nullptr && IsClientError(response->error())) {
    has_client_error_ = true;
    // Shards are added up, so that any of them may take the change.
    if (std::exchange(counts_as_backend_failure_, false)) {
      target_->statistics().host().ChangeReason(FailureReason::kBackend, FailureReason::kOther);
    }
  }
  if (response != nullptr) {
    response->MarkSent();
    if (keeps_outputs_in_host_memory() && !too_late) response->CopyOutputsToClient();
    if (trace_ != nullptr) TraceOutputs(trace_, *response);
    if (observer_ != nullptr && !too_late) observer_->OnResponse(*response);
    if (logs_failures_ && !too_late && !response->error().ok() && !cancelled()) {
      LogFailedRequest(schema().model_name, request_id_, response->error());
    }
  }
  if (too_late) {
    delete response;
  } else {
    Deliver(response, flags);
  }
  if (is_final) {
    room_.Open();
  } else if (response != nullptr && sender_waits_.load(std::memory_order_relaxed)) {
    room_.Wait();
  }
  if (response != nullptr) DropSender();
  Release();
  if (!too_late) return Status::Ok();
  return InvalidArgError("model '", schema().model_name,
                         "' sent a response after the final response of its request");
}

void ResponseSink::Deliver(InferResponse* response, uint32_t flags) {
  if (reorderer_ != nullptr) {
    reorderer_->Deliver(this, response, flags);
  } else {
    SendNow(response, flags);
  }
}

void ResponseSink::SendNow(InferResponse* response, uint32_t flags) {
  callbacks_.response_fn(response == nullptr ? nullptr : ToHandle(response), flags,
                         callbacks_.response_userp);
}

}  // namespace nereid::core
