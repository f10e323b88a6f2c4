// One request to a model, built by the caller, then given to Server::InferAsync. Inputs reference
// the caller's memory until the request is released. [any thread; one object, one thread, except
// Cancel]
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "nereid/error.h"
#include "nereid/infer_response.h"
#include "nereid/response_allocator.h"
#include "triton/core/tritonserver.h"

namespace nereid {
inline namespace sdk {  // the core has classes of the same names; both may meet in one program

class InferRequest;

// Hears of a request in flight. The object outlives both the final response and the release: the
// two may come in either order, on different threads, and before InferAsync returns. Must not
// throw.
class InferObserver {
 public:
  // [backend thread; calls of one request never overlap] An empty response comes only with
  // `is_final`: the stream ended with the response before, or without any.
  virtual void OnResponse(InferResponse response, bool is_final) noexcept = 0;
  // [backend thread] The request and its input memory belong to the caller again; `request` may be
  // destroyed or reused. It may be kept for as long as another thread might still Cancel it.
  virtual void OnRelease(InferRequest request) noexcept = 0;

 protected:
  ~InferObserver() = default;
};

class InferRequest {
 public:
  // `model_version` -1 lets the model's version policy choose.
  static Result<InferRequest> Create(TRITONSERVER_Server* server, const char* model_name,
                                     int64_t model_version = -1) {
    TRITONSERVER_InferenceRequest* request = nullptr;
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONSERVER_InferenceRequestNew(&request, server, model_name, model_version)));
    return InferRequest(request);
  }
  // Takes ownership.
  explicit InferRequest(TRITONSERVER_InferenceRequest* request) : request_(request) {}

  TRITONSERVER_InferenceRequest* get() const { return request_.get(); }
  TRITONSERVER_InferenceRequest* release() { return request_.release(); }

  Status SetId(const char* id) { return ToStatus(TRITONSERVER_InferenceRequestSetId(get(), id)); }
  // TRITONSERVER_RequestFlag bits: start and end of a sequence.
  Status SetFlags(uint32_t flags) {
    return ToStatus(TRITONSERVER_InferenceRequestSetFlags(get(), flags));
  }
  // 0 and "" mean that the request belongs to no sequence.
  Status SetCorrelationId(uint64_t id) {
    return ToStatus(TRITONSERVER_InferenceRequestSetCorrelationId(get(), id));
  }
  Status SetCorrelationId(const char* id) {
    return ToStatus(TRITONSERVER_InferenceRequestSetCorrelationIdString(get(), id));
  }
  Status SetPriority(uint64_t priority) {
    return ToStatus(TRITONSERVER_InferenceRequestSetPriorityUInt64(get(), priority));
  }
  Status SetTimeoutUs(uint64_t timeout_us) {
    return ToStatus(TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(get(), timeout_us));
  }

  Status SetParameter(const char* key, const char* value) {
    return ToStatus(TRITONSERVER_InferenceRequestSetStringParameter(get(), key, value));
  }
  Status SetParameter(const char* key, int64_t value) {
    return ToStatus(TRITONSERVER_InferenceRequestSetIntParameter(get(), key, value));
  }
  Status SetParameter(const char* key, bool value) {
    return ToStatus(TRITONSERVER_InferenceRequestSetBoolParameter(get(), key, value));
  }
  Status SetParameter(const char* key, double value) {
    return ToStatus(TRITONSERVER_InferenceRequestSetDoubleParameter(get(), key, value));
  }

  Status AddInput(const char* name, TRITONSERVER_DataType datatype,
                  std::span<const int64_t> shape) {
    return ToStatus(
        TRITONSERVER_InferenceRequestAddInput(get(), name, datatype, shape.data(), shape.size()));
  }
  // Type and shape as the model's configuration says; for a model of one input.
  Status AddRawInput(const char* name) {
    return ToStatus(TRITONSERVER_InferenceRequestAddRawInput(get(), name));
  }
  // References `size_bytes` at `base`, after what was appended before: an input may lie in pieces.
  Status AppendInputData(const char* name, const void* base, size_t size_bytes,
                         TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU,
                         int64_t memory_type_id = 0) {
    return ToStatus(TRITONSERVER_InferenceRequestAppendInputData(get(), name, base, size_bytes,
                                                                 memory_type, memory_type_id));
  }
  // For reuse after a release.
  Status RemoveAllInputs() { return ToStatus(TRITONSERVER_InferenceRequestRemoveAllInputs(get())); }
  Status RemoveAllInputData(const char* name) {
    return ToStatus(TRITONSERVER_InferenceRequestRemoveAllInputData(get(), name));
  }

  // No call of this asks for every output.
  Status AddRequestedOutput(const char* name) {
    return ToStatus(TRITONSERVER_InferenceRequestAddRequestedOutput(get(), name));
  }

  // Who hears of it and where outputs go; required before InferAsync. `allocator` and `observer`
  // outlive the request in flight; `allocator_userp` reaches the allocator's policy.
  Status SetCallbacks(InferObserver* observer, const ResponseAllocator& allocator,
                      void* allocator_userp) {
    NEREID_RETURN_IF_ERROR(ToStatus(
        TRITONSERVER_InferenceRequestSetReleaseCallback(get(), &ForwardRelease, observer)));
    return ToStatus(TRITONSERVER_InferenceRequestSetResponseCallback(
        get(), allocator.get(), allocator_userp, &ForwardResponse, observer));
  }

  Status Cancel() { return Cancel(get()); }
  // [any thread] Asks the model to stop. Legal between InferAsync and the destruction of the
  // request that OnRelease hands back, after the release too, then without effect.
  static Status Cancel(TRITONSERVER_InferenceRequest* request) {
    return ToStatus(TRITONSERVER_InferenceRequestCancel(request));
  }
  Result<bool> IsCancelled() const {
    bool is_cancelled = false;
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONSERVER_InferenceRequestIsCancelled(get(), &is_cancelled)));
    return is_cancelled;
  }

 private:
  static void ForwardResponse(TRITONSERVER_InferenceResponse* response, const uint32_t flags,
                              void* observer) {
    static_cast<InferObserver*>(observer)->OnResponse(
        InferResponse(response), (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0);
  }
  static void ForwardRelease(TRITONSERVER_InferenceRequest* request, const uint32_t,
                             void* observer) {
    static_cast<InferObserver*>(observer)->OnRelease(InferRequest(request));
  }

  struct Deleter {
    void operator()(TRITONSERVER_InferenceRequest* request) const {
      (void)ToStatus(TRITONSERVER_InferenceRequestDelete(request));
    }
  };
  std::unique_ptr<TRITONSERVER_InferenceRequest, Deleter> request_;
};

}  // namespace sdk
}  // namespace nereid
