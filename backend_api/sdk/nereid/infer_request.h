/// \file
/// One request to a model. The caller builds it and passes it to Server::InferAsync. Inputs
/// reference the caller's memory until the request is released. [any thread; one object, one thread
/// at a time, except Cancel]
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "nereid/error.h"
#include "nereid/ext/posted_input_buffer.h"
#include "nereid/ext/response_room.h"
#include "nereid/infer_response.h"
#include "nereid/response_allocator.h"
#include "triton/core/tritonserver.h"

namespace nereid {

class InferRequest;

/// Receives the events of a request in flight. The observer outlives both the final response and
/// the release. These may come in either order, on different threads, and before InferAsync
/// returns. The functions must not throw.
class InferObserver {
 public:
  /// [backend thread; calls for one request never overlap] The response is empty only together with
  /// `is_final`, if the stream ends without a further response.
  virtual void OnResponse(InferResponse response, bool is_final) noexcept = 0;
  /// [backend thread] The request and its input memory belong to the caller again; `request` may be
  /// destroyed or reused. Keep it for as long as another thread may still call Cancel.
  virtual void OnRelease(InferRequest request) noexcept = 0;

 protected:
  ~InferObserver() = default;
};

class InferRequest {
 public:
  /// `model_version` -1: the model's version policy chooses.
  static Result<InferRequest> Create(TRITONSERVER_Server* server, const char* model_name,
                                     int64_t model_version = -1) {
    TRITONSERVER_InferenceRequest* request = nullptr;
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONSERVER_InferenceRequestNew(&request, server, model_name, model_version)));
    return InferRequest(request);
  }
  /// Takes ownership.
  explicit InferRequest(TRITONSERVER_InferenceRequest* request) : request_(request) {}

  TRITONSERVER_InferenceRequest* get() const { return request_.get(); }
  TRITONSERVER_InferenceRequest* release() { return request_.release(); }

  Status SetId(const char* id) { return ToStatus(TRITONSERVER_InferenceRequestSetId(get(), id)); }
  /// TRITONSERVER_RequestFlag bits: start and end of a sequence.
  Status SetFlags(uint32_t flags) {
    return ToStatus(TRITONSERVER_InferenceRequestSetFlags(get(), flags));
  }
  /// 0 and "" mean that the request belongs to no sequence.
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
  /// Adds an input whose type and shape come from the model's configuration; for a model with one
  /// input.
  Status AddRawInput(const char* name) {
    return ToStatus(TRITONSERVER_InferenceRequestAddRawInput(get(), name));
  }
  /// Appends `size_bytes` bytes at `base` to the input's data. The memory is referenced, not
  /// copied. An input may consist of several buffers.
  Status AppendInputData(const char* name, const void* base, size_t size_bytes,
                         TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU,
                         int64_t memory_type_id = 0) {
    return ToStatus(TRITONSERVER_InferenceRequestAppendInputData(get(), name, base, size_bytes,
                                                                 memory_type, memory_type_id));
  }
  /// The next two functions let the caller fill a request again after its release: they remove all
  /// inputs, or the data of one input.
  Status RemoveAllInputs() { return ToStatus(TRITONSERVER_InferenceRequestRemoveAllInputs(get())); }
  Status RemoveAllInputData(const char* name) {
    return ToStatus(TRITONSERVER_InferenceRequestRemoveAllInputData(get(), name));
  }

  /// Asks for an output. A request for which this function was never called asks for all outputs.
  Status AddRequestedOutput(const char* name) {
    return ToStatus(TRITONSERVER_InferenceRequestAddRequestedOutput(get(), name));
  }

  /// Required before InferAsync. `observer` receives the events; `allocator` supplies the output
  /// memory, and its policy receives `allocator_userp`. Observer and allocator outlive the request
  /// in flight.
  Status SetCallbacks(InferObserver* observer, const ResponseAllocator& allocator,
                      void* allocator_userp) {
    NEREID_RETURN_IF_ERROR(ToStatus(
        TRITONSERVER_InferenceRequestSetReleaseCallback(get(), &ForwardRelease, observer)));
    return ToStatus(TRITONSERVER_InferenceRequestSetResponseCallback(
        get(), allocator.get(), allocator_userp, &ForwardResponse, observer));
  }

  Status Cancel() { return Cancel(get()); }
  /// [any thread] Asks the model to stop. Allowed from InferAsync until the request that OnRelease
  /// returned is destroyed; has no effect after the release.
  static Status Cancel(TRITONSERVER_InferenceRequest* request) {
    return ToStatus(TRITONSERVER_InferenceRequestCancel(request));
  }
  /// [any thread] Reports whether the caller can take further responses of a request that was sent.
  /// While it reports false, the model waits before it sends more; later the caller has to report
  /// true or to cancel. Allowed as long as Cancel. Has no effect if the host has no such function.
  static void SetRoom(TRITONSERVER_InferenceRequest* request, bool has_room) {
    if (const auto set_room = FindInferenceRequestSetRoom(); set_room != nullptr) {
      (void)ToStatus(set_room(request, has_room));
    }
  }
  /// [backend thread] Call it before the request is sent: the model waits also while the responses
  /// of `source`, which the calling backend executes, have no room.
  void SetRoomSource(TRITONBACKEND_Request* source) {
    if (const auto set_source = FindInferenceRequestSetRoomSource(); set_source != nullptr) {
      (void)ToStatus(set_source(get(), source));
    }
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

/// A posted input buffer of a model (nereid/ext/posted_input_buffer.h) with one owner. [one thread
/// at a time]
class PostedInputBuffer {
 public:
  /// Asks the model for a buffer of `size_bytes`. Null if the model does not exist, posts no
  /// buffer, or if the host lacks the functions. [any thread]
  static std::unique_ptr<PostedInputBuffer> Acquire(TRITONSERVER_Server* server,
                                                    const char* model_name, int64_t model_version,
                                                    uint64_t size_bytes) {
    const Functions& functions = Functions::Get();
    if (functions.offer == nullptr) return nullptr;
    std::unique_ptr<PostedInputBuffer> made(new PostedInputBuffer);
    const Status offered = ToStatus(functions.offer(server, model_name, model_version, size_bytes,
                                                    &made->memory_, &made->base_));
    if (!offered.ok() || made->memory_ == nullptr) return nullptr;
    return made;
  }
  ~PostedInputBuffer() {
    if (memory_ != nullptr) (void)ToStatus(Functions::Get().end(memory_));
  }
  PostedInputBuffer(const PostedInputBuffer&) = delete;
  PostedInputBuffer& operator=(const PostedInputBuffer&) = delete;

  char* base() const { return static_cast<char*>(base_); }
  bool IsForModelOf(const InferRequest& request) const {
    bool is_for = false;
    return ToStatus(Functions::Get().is_for(memory_, request.get(), &is_for)).ok() && is_for;
  }

 private:
  struct Functions {
    decltype(&NEREID_ServerOfferInput) offer;
    decltype(&NEREID_InputMemoryIsFor) is_for;
    decltype(&NEREID_InputMemoryDelete) end;

    template <typename Function>
    static Function Find(const char* name) {
      return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    }
    static const Functions& Get() {
      static const Functions functions{
          Find<decltype(&NEREID_ServerOfferInput)>("NEREID_ServerOfferInput"),
          Find<decltype(&NEREID_InputMemoryIsFor)>("NEREID_InputMemoryIsFor"),
          Find<decltype(&NEREID_InputMemoryDelete)>("NEREID_InputMemoryDelete")};
      return functions;
    }
  };

  PostedInputBuffer() = default;

  NEREID_PostedInputBuffer* memory_ = nullptr;
  void* base_ = nullptr;
};

}  // namespace nereid
