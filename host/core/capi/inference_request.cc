// TRITONSERVER_InferenceRequest: the life of a request. inference_request_fields.cc fills it in.
// [client thread]
#include "host/core/request/failed_request_log.h"
#include "host/core/request/infer_request.h"

#include "host/core/capi/handles.h"
#include "host/core/model/model.h"
#include "host/core/observe/trace.h"
#include "host/core/server.h"

using nereid::Status;
using nereid::core::AtCBoundary;
using nereid::core::FromHandle;
using nereid::core::InferRequest;
using nereid::core::ToHandle;

namespace {

TRITONSERVER_Error* Start(TRITONSERVER_Server* server,
                          TRITONSERVER_InferenceRequest* inference_request,
                          TRITONSERVER_InferenceTrace* trace) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_DELETED(inference_request);
  return nereid::core::AtCBoundary([&]() -> Status {
    InferRequest* request = FromHandle(inference_request);
    const nereid::core::Caller caller = nereid::core::CallerOf(server);
    NEREID_RETURN_IF_ERROR(FromHandle(server)->CheckAcceptsRequest(*request, caller));
    const Status prepared = request->Prepare(trace == nullptr ? nullptr : FromHandle(trace));
    const bool is_client = caller == nereid::core::Caller::kClient;
    if (!prepared.ok() && is_client) {
      nereid::core::LogFailedRequest(request->schema().model_name, request->id(), prepared);
    }
    NEREID_RETURN_IF_ERROR(prepared);
    if (is_client) request->sink()->LogFailures();
    // The response may arrive, and the client may delete the request, before Enqueue returns.
    const auto target = request->target();
    Status status = target->Enqueue(request);
    if (!status.ok()) {
      request->Unprepare();
      if (is_client) {
        nereid::core::LogFailedRequest(request->schema().model_name, request->id(), status);
      }
    }
    return status;
  });
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONSERVER_InferenceRequestNew(
    TRITONSERVER_InferenceRequest** inference_request, TRITONSERVER_Server* server,
    const char* model_name, const int64_t model_version) {
  NEREID_RETURN_IF_NULL(inference_request);
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(model_name);
  return AtCBoundary([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(std::shared_ptr<nereid::core::Model> model,
                            FromHandle(server)->models().Find(model_name, model_version));
    *inference_request = ToHandle(new InferRequest(std::move(model), model_version));
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestDelete(
    TRITONSERVER_InferenceRequest* inference_request) {
  if (inference_request == nullptr) return nullptr;
  NEREID_RETURN_IF_DELETED(inference_request);
  return AtCBoundary([&] { return InferRequest::Delete(FromHandle(inference_request)); });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestCancel(
    TRITONSERVER_InferenceRequest* inference_request) {
  NEREID_RETURN_IF_DELETED(inference_request);
  return AtCBoundary([&] { return FromHandle(inference_request)->Cancel(); });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestIsCancelled(
    TRITONSERVER_InferenceRequest* inference_request, bool* is_cancelled) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(is_cancelled);
  return AtCBoundary([&]() -> Status {
    const InferRequest& request = *FromHandle(inference_request);
    NEREID_RETURN_IF_ERROR(request.CheckWasPrepared("query cancellation status"));
    *is_cancelled = request.IsCancelled();
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetReleaseCallback(
    TRITONSERVER_InferenceRequest* inference_request,
    TRITONSERVER_InferenceRequestReleaseFn_t request_release_fn, void* request_release_userp) {
  NEREID_RETURN_IF_DELETED(inference_request);
  FromHandle(inference_request)->set_release_callback(request_release_fn, request_release_userp);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetResponseCallback(
    TRITONSERVER_InferenceRequest* inference_request,
    TRITONSERVER_ResponseAllocator* response_allocator, void* response_allocator_userp,
    TRITONSERVER_InferenceResponseCompleteFn_t response_fn, void* response_userp) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(response_allocator);
  NEREID_RETURN_IF_NULL(response_fn);
  FromHandle(inference_request)
      ->set_response_callbacks(
          {FromHandle(response_allocator), response_allocator_userp, response_fn, response_userp});
  return nullptr;
}

// On error the caller keeps the request and none of its callbacks is called. The trace is released
// before this function returns.
TRITONSERVER_Error* TRITONSERVER_ServerInferAsync(TRITONSERVER_Server* server,
                                                  TRITONSERVER_InferenceRequest* inference_request,
                                                  TRITONSERVER_InferenceTrace* trace) {
  TRITONSERVER_Error* const error = Start(server, inference_request, trace);
  if (error != nullptr && trace != nullptr) FromHandle(trace)->EndIfUnused();
  return error;
}

}  // extern "C"
