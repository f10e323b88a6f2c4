// Where the responses of one inference go. Made when the request is taken, shared by the request,
// its responses and the backend's response factories (a TRITONBACKEND_ResponseFactory* is a counted
// pointer to it), so that it outlives the request. [any thread]
//
// It also knows who could still send: the host or backend that holds the request, every factory and
// every response not yet sent. When the last of them goes without a final response, the sink sends
// an INTERNAL error itself, so that no client waits for ever.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "host/core/handle/handle_cast.h"
#include "host/core/request/request_target.h"
#include "host/core/request/response_allocator.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid {

class InferResponse;
class InferenceTrace;
class ResponseSink;

// Reorders deliveries: preserve_ordering. Implemented in scheduling/.
class ResponseGate {
 public:
  virtual ~ResponseGate() = default;
  // Takes over what SendNow would deliver; `sink` stays referenced until then.
  virtual void Deliver(ResponseSink* sink, InferResponse* response, uint32_t flags) = 0;
};

// Hears of every response before it is delivered. Implemented in cache/.
class ResponseTap {
 public:
  virtual ~ResponseTap() = default;
  // [the sender's thread; calls of one request never overlap]
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
  // Starts with one reference and one sender: the request's.
  ResponseSink(std::shared_ptr<RequestTarget> target, std::string request_id,
               const ResponseCallbacks& callbacks);

  void AddRef() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void Release();
  void AddSender() { senders_.fetch_add(1, std::memory_order_relaxed); }
  void DropSender();

  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  void Cancel() { cancelled_.store(true, std::memory_order_release); }

  const RequestPlan& plan() const { return target_->plan(); }
  const std::shared_ptr<RequestTarget>& target() const { return target_; }
  const std::string& request_id() const { return request_id_; }
  const ResponseCallbacks& callbacks() const { return callbacks_; }
  // The final response was sent: the client owes its callbacks no longer.
  bool has_ended() const { return final_sent_.load(std::memory_order_acquire); }

  // Consumes `response` (null: flags alone) in every case. INVALID_ARG after the final response.
  Status Send(InferResponse* response, uint32_t flags);
  // Calls the client. For the gate.
  void SendNow(InferResponse* response, uint32_t flags);
  // The request never started: no final response is owed. [client thread]
  void Abandon() { final_sent_.store(true, std::memory_order_relaxed); }
  // Set when an instance of the CPU executes the request: its outputs come in host memory, and are
  // copied to where the client wants them when they are sent.
  void KeepOutputsOnHost() { keeps_outputs_on_host_.store(true, std::memory_order_relaxed); }
  bool keeps_outputs_on_host() const {
    return keeps_outputs_on_host_.load(std::memory_order_relaxed);
  }
  // Running index of the responses that a backend reports statistics for.
  uint64_t NextStatisticsIndex() { return next_index_.fetch_add(1, std::memory_order_relaxed); }

  // The trace of the inference; null: not traced. Ends when nobody can send any more.
  InferenceTrace* trace() const { return trace_; }
  void set_trace(InferenceTrace* trace) { trace_ = trace; }

  // Set before the request is queued.
  void set_tap(std::unique_ptr<ResponseTap> tap) { tap_ = std::move(tap); }
  // Set before the request is queued. `gate` outlives the sink's deliveries; `ticket` is the
  // request's place in it.
  void set_gate(ResponseGate* gate, uint64_t ticket) {
    gate_ = gate;
    gate_ticket_ = ticket;
  }
  uint64_t gate_ticket() const { return gate_ticket_; }

 private:
  ~ResponseSink() = default;
  void Deliver(InferResponse* response, uint32_t flags);
  void SendMissingFinal();

  std::atomic<uint32_t> refs_{1};
  std::atomic<uint32_t> senders_{1};
  std::atomic<uint64_t> next_index_{0};
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> final_sent_{false};
  std::atomic<bool> keeps_outputs_on_host_{false};
  InferenceTrace* trace_ = nullptr;
  std::unique_ptr<ResponseTap> tap_;  // null: nobody listens
  ResponseGate* gate_ = nullptr;
  uint64_t gate_ticket_ = 0;
  const std::shared_ptr<RequestTarget> target_;
  const std::string request_id_;
  const ResponseCallbacks callbacks_;
};

// A counted pointer.
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

}  // namespace nereid

NEREID_HANDLE(TRITONBACKEND_ResponseFactory, nereid::ResponseSink);
