// A request: filled in by a client, lent to the host by Prepare and InferAsync, given back by
// Release; then the client may use it again or delete it. TRITONSERVER_InferenceRequest and
// TRITONBACKEND_Request. [whoever holds it: client thread, then the queue, then the backend]
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
#include "base/kept_memory.h"
#include "host/core/handle/handle_cast.h"
#include "host/core/handle/parameter.h"
#include "host/core/observe/log.h"
#include "host/core/request/request_target.h"
#include "host/core/request/response_sink.h"
#include "host/core/request/tensor.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid {

// An id of a sequence: a number or a text; 0 and "" mean none.
using CorrelationId = std::variant<uint64_t, std::string>;

class InferRequest;
class SequenceStates;

// Hears that a backend is done with a request, before the request's client does. With the flag
// RESCHEDULE the request is the hook's again. Implemented by schedulers. [any thread]
class ReleaseHook {
 public:
  virtual ~ReleaseHook() = default;
  virtual void OnRelease(InferRequest* request, uint32_t release_flags) = 0;
};

// Inputs that a scheduler gives a request for one execution, beside those of the client: sequence
// controls and states. `tensors` refer to memory of the scheduler or to what is kept here.
struct HostInputs {
  std::vector<InputTensor> tensors;
  std::string id_bytes;                             // the sequence's id, as a tensor has it
  std::vector<std::shared_ptr<const void>> memory;  // of states
  std::shared_ptr<SequenceStates> states;           // null: none
};

class InferRequest : public KeptMemory<InferRequest> {
 public:
  InferRequest(std::shared_ptr<RequestTarget> target, int64_t requested_version);
  ~InferRequest() = default;
  InferRequest(const InferRequest&) = delete;
  InferRequest& operator=(const InferRequest&) = delete;

  // ---- what the client sets ----
  const std::string& id() const { return id_; }
  void set_id(std::string_view id) { id_ = id; }
  uint32_t flags() const { return flags_; }
  void set_flags(uint32_t flags) { flags_ = flags; }
  const CorrelationId& correlation_id() const { return correlation_id_; }
  // INVALID_ARG when the id is of the other kind.
  Status GetCorrelationId(uint64_t* id) const;
  Status GetCorrelationId(const char** id) const;
  void set_correlation_id(CorrelationId id) { correlation_id_ = std::move(id); }
  uint64_t priority() const { return priority_; }
  // Levels that the model does not have become its default level.
  void set_priority(uint64_t priority);
  uint64_t timeout_us() const { return timeout_us_; }
  void set_timeout_us(uint64_t timeout_us) { timeout_us_ = timeout_us; }
  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  Status AddInput(std::string_view name, DataType data_type, std::span<const int64_t> shape);
  Status AddRawInput(std::string_view name);
  Status RemoveInput(std::string_view name);
  void RemoveAllInputs() { inputs_.clear(); }
  // `host_policy` null: for every policy without data of its own.
  Status AppendInputData(std::string_view name, const void* base,
                         const BufferAttributes& attributes, const char* host_policy = nullptr);
  Status RemoveAllInputData(std::string_view name);
  // A name that the model does not have is refused by Prepare.
  void AddRequestedOutput(std::string_view name);
  void RemoveRequestedOutput(std::string_view name);
  void RemoveAllRequestedOutputs() {
    requested_outputs_.clear();
    unknown_outputs_.clear();
  }
  void set_release_callback(TRITONSERVER_InferenceRequestReleaseFn_t fn, void* userp);
  void set_response_callbacks(const ResponseCallbacks& callbacks) { callbacks_ = callbacks; }

  // ---- the life of an inference ----
  // Checks the request against its model's plan and lends it to the host. On error it stays the
  // client's. INVALID_ARG names the request, the tensor and both values.
  // `trace`, if any, is the inference's until its release function runs.
  Status Prepare(InferenceTrace* trace = nullptr);
  // Takes a prepared request back that the queue refused.
  void Unprepare();
  // Raises the flag that backends poll; a queued request is answered at once. INTERNAL before the
  // first inference.
  Status Cancel();
  bool IsCancelled() const;
  // INTERNAL before the first inference.
  Status CheckWasPrepared(const char* to_do_what) const;
  bool lent() const { return holder_.load(std::memory_order_acquire) != Holder::kClient; }
  // `request` is the client's no longer. One whose final response was sent, but that its backend
  // still has, is deleted after its release callback: clients that wait for the response alone
  // cannot know of the release. INVALID_ARG before that response, and for a second deletion.
  static Status Delete(InferRequest* request);
  // Tells the hooks, the newest first, then gives the request back to its client, who may delete it
  // in the callback or have deleted it before. With RESCHEDULE the first hook has it instead.
  void Release(uint32_t release_flags);
  // Answers with `error` as the final response, counts the failure and releases.
  void Fail(Status error, FailureReason reason);

  // kInitialized or kReleased or kFailedEnqueue -> kPending; kPending -> kFailedEnqueue |
  // kExecuting | kReleased; kExecuting -> kPending (rescheduled) | kReleased. For the log alone.
  enum class State : uint8_t { kInitialized, kPending, kFailedEnqueue, kExecuting, kReleased };
  void SetState(State state) {
    if (log::VerboseEnabled(1)) LogState(state);
    state_ = state;
  }

  // ---- what schedulers set ----
  // `hook` hears of the next release; it outlives the request's inference.
  void AddReleaseHook(ReleaseHook* hook) { release_hooks_.push_back(hook); }
  // They live until the next release.
  void SetHostInputs(std::unique_ptr<HostInputs> inputs) { host_inputs_ = std::move(inputs); }
  HostInputs* host_inputs() const { return host_inputs_.get(); }
  // A request of the host that no statistics show: it fills the place of one that is not there.
  bool uncounted() const { return uncounted_; }
  void set_uncounted() { uncounted_ = true; }

  // ---- what an instance on the CPU sets ----
  // Until the next release, a backend that does not wish for memory of a GPU gets its inputs and
  // outputs in host memory.
  void KeepOnHost(MemoryManager* memory);

  // ---- what scheduler and backend read ----
  const RequestPlan& plan() const { return target_->plan(); }
  const std::shared_ptr<RequestTarget>& target() const { return target_; }
  int64_t requested_version() const { return requested_version_; }
  ResponseSink* sink() const { return sink_.get(); }
  // Null: the inference is not traced.
  InferenceTrace* trace() const { return sink_->trace(); }
  // Rows of the batch; 1 when the model has no batch dimension.
  int64_t batch_size() const { return batch_size_; }
  // The client's inputs, then the host's.
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
  // What the client asked for; every output of the model when it asked for none.
  size_t num_outputs() const;
  const std::string& output_name(size_t index) const;

  // "[request id: x] ", as errors about a request begin.
  std::string LogPrefix() const;

  // Stamps: written by the host as the request moves on.
  uint64_t request_start_ns = 0;
  uint64_t queue_start_ns = 0;
  uint64_t queue_deadline_ns = 0;  // 0: none

  // Links of the queue that holds the request; guarded by that queue's mutex.
  struct QueueLinks {
    InferRequest* prev = nullptr;
    InferRequest* next = nullptr;
    void* list = nullptr;  // the list it is in; null: none
  };
  QueueLinks queue_links;
  void* scheduler_note = nullptr;  // its scheduler's own while an instance has it

 private:
  // By the name that the client gave it: a raw input has its model's name once it was sent.
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
  InlineVector<int, 4> requested_outputs_;    // indices into the plan's outputs
  std::vector<std::string> unknown_outputs_;  // asked for, and not in the plan
  ResponseCallbacks callbacks_;
  TRITONSERVER_InferenceRequestReleaseFn_t release_fn_ = nullptr;
  void* release_userp_ = nullptr;

  ResponseSinkRef sink_;  // of the current or last inference
  int64_t batch_size_ = 1;
  enum class Holder : uint8_t { kClient, kHost, kHostAlone };  // the last: the client deleted it
  std::atomic<Holder> holder_{Holder::kClient};
  State state_ = State::kInitialized;
  bool uncounted_ = false;
  bool kept_on_host_ = false;
  InlineVector<ReleaseHook*, 2> release_hooks_;
  std::unique_ptr<HostInputs> host_inputs_;
};

}  // namespace nereid

NEREID_HANDLE(TRITONSERVER_InferenceRequest, nereid::InferRequest);
NEREID_HANDLE_ALIAS(TRITONBACKEND_Request, nereid::InferRequest);
