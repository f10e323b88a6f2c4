// An inference request: TRITONSERVER_InferenceRequest and TRITONBACKEND_Request. A client fills it
// in. Prepare passes ownership to the host and Release returns it; the client may then reuse or
// delete the request. [the thread of its current owner: client, then queue, then backend]
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/inline_vector.h"
#include "base/quarantined_memory.h"
#include "host/core/handle/handle_cast.h"
#include "host/core/handle/parameter.h"
#include "host/core/observe/log.h"
#include "host/core/request/request_schema.h"
#include "host/core/request/response_sink.h"
#include "host/core/request/tensor.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid::core {

// The id of a sequence: a number or a string. 0 and "" mean that the request has no sequence.
using CorrelationId = std::variant<uint64_t, std::string>;

class InferRequest;
class SequenceStates;

// Called when a backend releases a request, before the client's release callback. With the flag
// RESCHEDULE the hook becomes the owner of the request again. Implemented by schedulers. [any
// thread]
class ReleaseHook {
 public:
  virtual ~ReleaseHook() = default;
  virtual void OnRelease(InferRequest* request, uint32_t release_flags) = 0;
};

// Inputs that the host adds to the client's inputs for one execution: sequence controls and states.
// `tensors` refer to memory of the scheduler or to the other members.
struct HostInputs {
  std::vector<InputTensor> tensors;
  std::string id_bytes;                             // data of the correlation id tensor
  std::vector<std::shared_ptr<const void>> memory;  // keeps the memory of states
  std::shared_ptr<SequenceStates> states;           // null if the model has no states
};

class InferRequest : public QuarantinedMemory<InferRequest> {
 public:
  InferRequest(std::shared_ptr<RequestTarget> target, int64_t requested_version);
  ~InferRequest() = default;
  InferRequest(const InferRequest&) = delete;
  InferRequest& operator=(const InferRequest&) = delete;

  // ---- set by the client ----
  const std::string& id() const { return id_; }
  void set_id(std::string_view id) { id_ = id; }
  uint32_t flags() const { return flags_; }
  void set_flags(uint32_t flags) { flags_ = flags; }
  const CorrelationId& correlation_id() const { return correlation_id_; }
  // INVALID_ARG if the id is of the other kind.
  Status GetCorrelationId(uint64_t* id) const;
  Status GetCorrelationId(const char** id) const;
  void set_correlation_id(CorrelationId id) { correlation_id_ = std::move(id); }
  uint64_t priority() const { return priority_; }
  // A level that the model does not have is replaced by the model's default level.
  void set_priority(uint64_t priority);
  uint64_t timeout_us() const { return timeout_us_; }
  void set_timeout_us(uint64_t timeout_us) { timeout_us_ = timeout_us; }
  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  Status AddInput(std::string_view name, DataType data_type, std::span<const int64_t> shape);
  Status AddRawInput(std::string_view name);
  Status RemoveInput(std::string_view name);
  void RemoveAllInputs() { inputs_.clear(); }
  // If `host_policy` is null, the data is for each host policy that has no data of its own.
  Status AppendInputData(std::string_view name, const void* base,
                         const BufferAttributes& attributes, const char* host_policy = nullptr);
  Status RemoveAllInputData(std::string_view name);
  // INVALID_ARG for an output that was added before. Prepare rejects a name that the model does not
  // have.
  Status AddRequestedOutput(std::string_view name);
  void RemoveRequestedOutput(std::string_view name);
  void RemoveAllRequestedOutputs() {
    requested_outputs_.clear();
    unknown_outputs_.clear();
  }
  void set_release_callback(TRITONSERVER_InferenceRequestReleaseFn_t fn, void* userp);
  void set_response_callbacks(const ResponseCallbacks& callbacks) { callbacks_ = callbacks; }

  // ---- the life cycle of an inference ----
  // Checks the request against its model's schema and passes its ownership to the host. On error
  // the client stays the owner. INVALID_ARG names the request, the tensor and both values. The
  // inference owns `trace`, which may be null, until the trace's release function runs.
  Status Prepare(InferenceTrace* trace = nullptr);
  // Returns a prepared request that the queue rejected to the client.
  void Unprepare();
  // Sets the cancellation flag that backends poll. A queued request is answered at once. INTERNAL
  // before the first inference.
  Status Cancel();
  bool IsCancelled() const;
  // INTERNAL before the first inference.
  Status CheckWasPrepared(const char* to_do_what) const;
  bool in_flight() const { return owner_.load(std::memory_order_acquire) != Owner::kClient; }
  // Deletes `request` for the client. If the final response was sent but the backend has not
  // released the request, it is deleted after its release callback: a client that waits only for
  // the response does not know about the release. INVALID_ARG before the final response and for a
  // second deletion.
  static Status Delete(InferRequest* request);
  // Calls the hooks, the newest first, then returns the request to its client. The client may
  // delete it in the callback or may have deleted it before. With RESCHEDULE the request is not
  // returned: the first hook owns it.
  void Release(uint32_t release_flags);
  // Sends `error` as the final response, counts the failure and releases the request.
  void Fail(Status error, FailureReason reason);

  // kInitialized or kReleased or kFailedEnqueue -> kPending; kPending -> kFailedEnqueue |
  // kExecuting | kReleased; kExecuting -> kPending (rescheduled) | kReleased. Used only for the
  // log.
  enum class State : uint8_t { kInitialized, kPending, kFailedEnqueue, kExecuting, kReleased };
  void SetState(State state) {
    if (log::VerboseEnabled(1)) LogState(state);
    state_ = state;
  }

  // ---- set by schedulers ----
  // `hook` is called at the next release. It must outlive the inference.
  void AddReleaseHook(ReleaseHook* hook) { release_hooks_.push_back(hook); }
  // The inputs are kept until the next release.
  void SetHostInputs(std::unique_ptr<HostInputs> inputs) { host_inputs_ = std::move(inputs); }
  HostInputs* host_inputs() const { return host_inputs_.get(); }
  // True for a null request, which the statistics do not count.
  bool excluded_from_statistics() const { return excluded_from_statistics_; }
  void ExcludeFromStatistics() { excluded_from_statistics_ = true; }

  // ---- set by a backend that makes the request on behalf of another one ----
  // The responses of the next inference have room only while those of `source` have some.
  void SetRoomSource(ResponseSink* source);

  // ---- set by an instance on the CPU ----
  // Until the next release, the backend gets inputs and outputs in host memory unless it requests
  // GPU memory.
  void UseHostMemory(MemoryManager* memory);

  // ---- read by scheduler and backend ----
  const RequestSchema& schema() const { return target_->schema(); }
  const std::shared_ptr<RequestTarget>& target() const { return target_; }
  int64_t requested_version() const { return requested_version_; }
  ResponseSink* sink() const { return sink_.get(); }
  // Null if the inference is not traced.
  InferenceTrace* trace() const { return sink_->trace(); }
  // The size of the batch dimension of the inputs; 1 if the model has none.
  int64_t batch_size() const { return batch_size_; }
  // The inputs of the client, followed by those of the host.
  size_t num_inputs() const {
    return inputs_.size() + (host_inputs_ ? host_inputs_->tensors.size() : 0);
  }
  InputTensor& input(size_t index) {
    return index < inputs_.size() ? inputs_[index] : host_inputs_->tensors[index - inputs_.size()];
  }
  const InputTensor& input(size_t index) const {
    return const_cast<InferRequest*>(this)->input(index);
  }
  InputTensor* FindInput(std::string_view name);
  const InputTensor* InputForSpec(int spec_index) const;
  // The requested outputs; all outputs of the model if the client requested none.
  size_t num_outputs() const;
  const std::string& output_name(size_t index) const;

  // "[request id: x] ", the prefix of errors about a request.
  std::string LogPrefix() const;

  // Timestamps on the steady clock, written by the host.
  uint64_t request_start_ns = 0;
  uint64_t queue_start_ns = 0;
  uint64_t queue_deadline_ns = 0;  // 0: no deadline

  // Links of the queue that has the request, guarded by that queue's mutex.
  struct QueueLinks {
    InferRequest* prev = nullptr;
    InferRequest* next = nullptr;
    void* list = nullptr;  // the list that has the request; null if none
  };
  QueueLinks queue_links;
  void* scheduler_data = nullptr;  // used by the scheduler while an instance has the request

 private:
  // Finds an input by the name that the client gave it. Prepare changes the name of a raw input to
  // the one in the model.
  InputTensor* FindClientInput(std::string_view name);
  Status MissingInput(std::string_view name) const;
  void DropHostCopies();
  void LogState(State state) const;

  std::shared_ptr<RequestTarget> target_;
  const int64_t requested_version_;
  std::string id_;
  uint32_t flags_ = 0;
  CorrelationId correlation_id_ = uint64_t{0};
  uint64_t priority_ = 0;
  uint64_t timeout_us_ = 0;
  std::vector<Parameter> parameters_;
  InlineVector<InputTensor, 2> inputs_;
  InlineVector<int, 4> requested_outputs_;    // indices into the schema's outputs
  std::vector<std::string> unknown_outputs_;  // requested, but not in the schema
  ResponseCallbacks callbacks_;
  TRITONSERVER_InferenceRequestReleaseFn_t release_fn_ = nullptr;
  void* release_userp_ = nullptr;

  ResponseSinkRef sink_;         // of the current or the last inference
  ResponseSinkRef room_source_;  // of the next inference; null if there is none
  int64_t batch_size_ = 1;
  enum class Owner : uint8_t {
    kClient,
    kHost,
    kHostAfterDelete
  };  // the last: the client deleted it
  std::atomic<Owner> owner_{Owner::kClient};
  State state_ = State::kInitialized;
  bool excluded_from_statistics_ = false;
  bool uses_host_memory_ = false;
  InlineVector<ReleaseHook*, 2> release_hooks_;
  std::unique_ptr<HostInputs> host_inputs_;
};

}  // namespace nereid::core

NEREID_HANDLE(TRITONSERVER_InferenceRequest, nereid::core::InferRequest);
NEREID_HANDLE_ALIAS(TRITONBACKEND_Request, nereid::core::InferRequest);
