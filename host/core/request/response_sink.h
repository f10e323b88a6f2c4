// Delivers the responses of one inference to the client. The request, its responses and the
// backend's response factories share it, so that it may outlive the request. A
// TRITONBACKEND_ResponseFactory* is a counted reference to it. [any thread]
//
// The sink also counts its senders: the owner of the request (host or backend), each factory and
// each unsent response. If the last sender disappears without a final response, the sink sends an
// INTERNAL error, so that the client does not wait forever.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "host/core/handle/handle_cast.h"
#include "host/core/request/request_schema.h"
#include "host/core/request/response_allocator.h"
#include "host/core/request/response_room.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid::core {

class InferResponse;
class InferenceTrace;
class ResponseSink;

// Delivers responses in the order of their requests (preserve_ordering). Implemented in
// scheduling/.
class ResponseReorderer {
 public:
  virtual ~ResponseReorderer() = default;
  // Takes ownership of `response` and calls sink->SendNow when it is its turn. It keeps a reference
  // to `sink` until then.
  virtual void Deliver(ResponseSink* sink, InferResponse* response, uint32_t flags) = 0;
};

// Is called with each response before it is delivered. Implemented by the response cache and for
// metrics.
class ResponseObserver {
 public:
  virtual ~ResponseObserver() = default;
  // [the sender's thread; calls for one request do not overlap]
  virtual void OnResponse(const InferResponse& response) = 0;
};

struct ResponseCallbacks {
  const ResponseAllocator* allocator = nullptr;
  void* allocator_userp = nullptr;
  TRITONSERVER_InferenceResponseCompleteFn_t response_fn = nullptr;
  void* response_userp = nullptr;
};

class ResponseSink {
 public:
  // Starts with one reference and one sender, those of the request.
  ResponseSink(std::shared_ptr<RequestTarget> target, std::string request_id,
               const ResponseCallbacks& callbacks);

  void AddRef() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void Release();
  void AddSender() { senders_.fetch_add(1, std::memory_order_relaxed); }
  void DropSender();

  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  void Cancel() {
    cancelled_.store(true, std::memory_order_release);
    room_.Open();
  }

  // Whether the client can take further responses.
  ResponseRoom& room() { return room_; }
  // The client's room depends on that of `source`, for whose request a backend has made this one.
  // Takes a counted reference. Must be called before the request is queued.
  void SetRoomSource(ResponseSink* source);
  // Whether Send waits until there is room. A sender that asks for room itself need not wait.
  void SetSenderWaits(bool waits) { sender_waits_.store(waits, std::memory_order_relaxed); }

  const RequestSchema& schema() const { return target_->schema(); }
  const std::shared_ptr<RequestTarget>& target() const { return target_; }
  const std::string& request_id() const { return request_id_; }
  const ResponseCallbacks& callbacks() const { return callbacks_; }
  // The final response was sent. The client's callbacks and allocator may no longer exist.
  bool has_ended() const { return final_sent_.load(std::memory_order_acquire); }

  // Sends `response`, or only `flags` if it is null. Takes ownership of `response`, also on error.
  // INVALID_ARG after the final response. After a response that is not final it returns only when
  // the client can take another one, unless SetSenderWaits or the thread forbids that.
  Status Send(InferResponse* response, uint32_t flags);
  // Calls the client's callback. Used by the reorderer.
  void SendNow(InferResponse* response, uint32_t flags);
  // Errors are logged: the request is a client's, not one that a model makes and may expect to
  // fail. Must be called before the request is queued.
  void LogFailures() { logs_failures_ = true; }
  // The request was not started, so no final response is required. [client thread]
  void Abandon() { final_sent_.store(true, std::memory_order_relaxed); }
  // Set when an instance on the CPU executes the request: it writes outputs to host memory, and
  // they are copied to the client's buffers when the response is sent.
  void KeepOutputsInHostMemory() {
    keeps_outputs_in_host_memory_.store(true, std::memory_order_relaxed);
  }
  bool keeps_outputs_in_host_memory() const {
    return keeps_outputs_in_host_memory_.load(std::memory_order_relaxed);
  }
  // A backend reports a failed request before or after it sends the error. If the error says that
  // the client's request was wrong, the failure is not the backend's. [the sender's thread]
  void MarkFailed() { counts_as_backend_failure_ = true; }
  // Whether such an error was sent. [the sender's thread]
  bool has_client_error() const { return has_client_error_; }
  // The next index for the response statistics that a backend reports.
  uint64_t NextStatisticsIndex() { return next_index_.fetch_add(1, std::memory_order_relaxed); }

  // The trace of the inference; null if it is not traced. It ends when the last sender disappears.
  InferenceTrace* trace() const { return trace_; }
  void set_trace(InferenceTrace* trace) { trace_ = trace; }

  // Must be called before the request is queued.
  void set_observer(std::unique_ptr<ResponseObserver> observer) { observer_ = std::move(observer); }
  // Must be called before the request is queued. `reorderer` must outlive all deliveries of the
  // sink. `ticket` is the request's position in the order.
  void set_reorderer(ResponseReorderer* reorderer, uint64_t ticket) {
    reorderer_ = reorderer;
    reorder_ticket_ = ticket;
  }
  uint64_t reorder_ticket() const { return reorder_ticket_; }

 private:
  ~ResponseSink();
  void Deliver(InferResponse* response, uint32_t flags);
  void SendMissingFinal();

  std::atomic<uint32_t> refs_{1};
  std::atomic<uint32_t> senders_{1};
  std::atomic<uint64_t> next_index_{0};
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> final_sent_{false};
  std::atomic<bool> keeps_outputs_in_host_memory_{false};
  std::atomic<bool> sender_waits_{true};
  bool counts_as_backend_failure_ = false;
  bool has_client_error_ = false;
  bool logs_failures_ = false;
  ResponseRoom room_;
  ResponseSink* room_source_ = nullptr;  // a counted reference; null if there is none
  InferenceTrace* trace_ = nullptr;
  std::unique_ptr<ResponseObserver> observer_;  // may be null
  ResponseReorderer* reorderer_ = nullptr;
  uint64_t reorder_ticket_ = 0;
  const std::shared_ptr<RequestTarget> target_;
  const std::string request_id_;
  const ResponseCallbacks callbacks_;
};

// A counted reference to a ResponseSink.
class ResponseSinkRef {
 public:
  ResponseSinkRef() = default;
  explicit ResponseSinkRef(ResponseSink* adopted) : sink_(adopted) {}
  ResponseSinkRef(ResponseSinkRef&& other) noexcept : sink_(std::exchange(other.sink_, nullptr)) {}
  ResponseSinkRef& operator=(ResponseSinkRef&& other) noexcept {
    std::swap(sink_, other.sink_);
    return *this;
  }
  ~ResponseSinkRef() {
    if (sink_ != nullptr) sink_->Release();
  }
  ResponseSink* get() const { return sink_; }
  ResponseSink* operator->() const { return sink_; }

 private:
  ResponseSink* sink_ = nullptr;
};

}  // namespace nereid::core

NEREID_HANDLE(TRITONBACKEND_ResponseFactory, nereid::core::ResponseSink);
