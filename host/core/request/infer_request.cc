#include "host/core/request/infer_request.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "host/core/observe/log.h"
#include "host/core/observe/trace.h"
#include "host/core/request/infer_response.h"
#include "host/core/request/request_check.h"
#include "host/core/request/request_text.h"

namespace nereid {

InferRequest::InferRequest(std::shared_ptr<RequestTarget> target, int64_t requested_version)
    : target_(std::move(target)), requested_version_(requested_version) {
  priority_ = plan().default_priority_level;
}

void InferRequest::set_priority(uint64_t priority) {
  const bool unknown = priority == 0 || priority > plan().priority_levels;
  priority_ = unknown ? plan().default_priority_level : priority;
}

Status InferRequest::GetCorrelationId(uint64_t* id) const {
  const auto* number = std::get_if<uint64_t>(&correlation_id_);
  if (number == nullptr) {
    return InvalidArgError("given request's correlation id is not an unsigned int");
  }
  *id = *number;
  return Status::Ok();
}

Status InferRequest::GetCorrelationId(const char** id) const {
  const auto* text = std::get_if<std::string>(&correlation_id_);
  if (text == nullptr) return InvalidArgError("given request's correlation id is not a string");
  *id = text->c_str();
  return Status::Ok();
}

Status InferRequest::AddInput(std::string_view name, DataType data_type,
                              std::span<const int64_t> shape) {
  if (FindClientInput(name) != nullptr) {
    return InvalidArgError(LogPrefix(), "input '", name, "' already exists in request");
  }
  InputTensor& input = inputs_.emplace_back();
  input.name = name;
  input.data_type = data_type;
  input.client_shape.assign(shape);
  return Status::Ok();
}

Status InferRequest::AddRawInput(std::string_view name) {
  if (!inputs_.empty()) {
    return InvalidArgError(LogPrefix(), "raw input '", name,
                           "' can't be added to request with other inputs");
  }
  InputTensor& input = inputs_.emplace_back();
  input.name = name;
  input.raw = true;
  return Status::Ok();
}

InputTensor* InferRequest::FindInput(std::string_view name) {
  for (size_t i = 0; i < num_inputs(); ++i) {
    if (input(i).name == name) return &input(i);
  }
  return nullptr;
}

InputTensor* InferRequest::FindClientInput(std::string_view name) {
  for (InputTensor& input : inputs_) {
    if ((input.raw_name.empty() ? input.name : input.raw_name) == name) return &input;
  }
  return nullptr;
}

const InputTensor* InferRequest::InputForSpec(int spec_index) const {
  for (const InputTensor& input : inputs_) {
    if (input.spec_index == spec_index) return &input;
  }
  return nullptr;
}

Status InferRequest::MissingInput(std::string_view name) const {
  return InvalidArgError(LogPrefix(), "input '", name, "' does not exist in request");
}

Status InferRequest::RemoveInput(std::string_view name) {
  const InputTensor* input = FindClientInput(name);
  if (input == nullptr) return MissingInput(name);
  inputs_.erase(input - inputs_.begin());
  return Status::Ok();
}

Status InferRequest::AppendInputData(std::string_view name, const void* base,
                                     const BufferAttributes& attributes, const char* host_policy) {
  InputTensor* input = FindClientInput(name);
  if (input == nullptr) return MissingInput(name);
  if (attributes.byte_size == 0) return Status::Ok();
  if (base == nullptr) {
    return InvalidArgError(LogPrefix(), "data of input '", name, "' is null, but its size is ",
                           attributes.byte_size);
  }
  InputBuffers* buffers = &input->buffers;
  if (host_policy != nullptr) {
    auto& all = input->policy_buffers;
    auto it = std::find_if(all.begin(), all.end(),
                           [&](const auto& entry) { return entry.first == host_policy; });
    if (it == all.end()) it = all.insert(all.end(), {host_policy, InputBuffers()});
    buffers = &it->second;
  }
  buffers->push_back({base, attributes});
  return Status::Ok();
}

Status InferRequest::RemoveAllInputData(std::string_view name) {
  InputTensor* input = FindClientInput(name);
  if (input == nullptr) return MissingInput(name);
  input->buffers.clear();
  input->policy_buffers.clear();
  return Status::Ok();
}

void InferRequest::AddRequestedOutput(std::string_view name) {
  const int index = plan().FindOutput(name);
  if (index < 0) return void(unknown_outputs_.emplace_back(name));
  const auto* end = requested_outputs_.end();
  if (std::find(requested_outputs_.begin(), requested_outputs_.end(), index) == end) {
    requested_outputs_.push_back(index);
  }
}

void InferRequest::RemoveRequestedOutput(std::string_view name) {
  std::erase(unknown_outputs_, name);
  const int index = plan().FindOutput(name);
  for (size_t i = 0; i < requested_outputs_.size(); ++i) {
    if (requested_outputs_[i] == index) return requested_outputs_.erase(i);
  }
}

size_t InferRequest::num_outputs() const {
  return requested_outputs_.empty() ? plan().outputs.size() : requested_outputs_.size();
}

const std::string& InferRequest::output_name(size_t index) const {
  return plan().outputs[requested_outputs_.empty() ? index : requested_outputs_[index]].name;
}

void InferRequest::set_release_callback(TRITONSERVER_InferenceRequestReleaseFn_t fn, void* userp) {
  release_fn_ = fn;
  release_userp_ = userp;
}

std::string InferRequest::LogPrefix() const {
  return RequestLogPrefix(id_);
}

Status InferRequest::Prepare(InferenceTrace* trace) {
  if (lent()) {
    return InvalidArgError(LogPrefix(), "request to model '", plan().model_name,
                           "' is still in flight");
  }
  if (!unknown_outputs_.empty()) {
    return InvalidArgError("unexpected inference output '", unknown_outputs_.front(),
                           "' for model '", plan().model_name, "'");
  }
  request_start_ns = SteadyNowNs();
  queue_deadline_ns = 0;
  NEREID_RETURN_IF_ERROR(CheckInputs(plan(), id_, {inputs_.data(), inputs_.size()}, &batch_size_));
  if (callbacks_.response_fn == nullptr || callbacks_.allocator == nullptr) {
    return InvalidArgError(LogPrefix(), "no response callback is set");
  }
  if (release_fn_ == nullptr) {
    return InvalidArgError(LogPrefix(), "no release callback is set");
  }
  if (trace != nullptr) {
    NEREID_RETURN_IF_ERROR(trace->Begin(plan().model_name, plan().model_version, id_));
    trace->Report(TRITONSERVER_TRACE_REQUEST_START, request_start_ns);
  }
  sink_ = ResponseSinkRef(new ResponseSink(target_, id_, callbacks_));
  sink_->set_trace(trace);
  holder_.store(Holder::kHost, std::memory_order_release);
  NEREID_LOG_VERBOSE(1, LogPrefix(), "prepared: ", DescribeRequest(*this));
  SetState(State::kPending);
  return Status::Ok();
}

void InferRequest::LogState(State state) const {
  static constexpr const char* kNames[] = {"INITIALIZED", "PENDING", "FAILED_ENQUEUE", "EXECUTING",
                                           "RELEASED"};
  const auto name = [](State one) { return kNames[static_cast<size_t>(one)]; };
  NEREID_LOG_VERBOSE(1, LogPrefix(), "Setting state from ", name(state_), " to ", name(state));
}

void InferRequest::Unprepare() {
  SetState(State::kFailedEnqueue);
  if (trace() != nullptr) trace()->TakeBack();
  sink_->set_trace(nullptr);
  sink_->Abandon();
  sink_->DropSender();
  sink_ = ResponseSinkRef();
  holder_.store(Holder::kClient, std::memory_order_release);
}

Status InferRequest::Delete(InferRequest* request) {
  Holder holder = request->holder_.load(std::memory_order_acquire);
  if (holder == Holder::kHost) {
    if (!request->sink_->has_ended()) {
      return InvalidArgError(request->LogPrefix(), "cannot delete a request that is in flight");
    }
    const bool deferred = request->holder_.compare_exchange_strong(
        holder, Holder::kHostAlone, std::memory_order_acq_rel, std::memory_order_acquire);
    if (deferred) return Status::Ok();
  }
  if (holder == Holder::kHostAlone) {
    return InvalidArgError(request->LogPrefix(), "request was deleted before");
  }
  delete request;
  return Status::Ok();
}

Status InferRequest::Cancel() {
  NEREID_RETURN_IF_ERROR(CheckWasPrepared("cancel an inference request"));
  sink_->Cancel();
  target_->OnCancelled(this);
  return Status::Ok();
}

Status InferRequest::CheckWasPrepared(const char* to_do_what) const {
  if (sink_.get() != nullptr) return Status::Ok();
  return InternalError("It is not possible to ", to_do_what,
                       " before calling TRITONSERVER_InferAsync.");
}

bool InferRequest::IsCancelled() const {
  return sink_.get() != nullptr && sink_->cancelled();
}

void InferRequest::KeepOnHost(MemoryManager* memory) {
  sink_->KeepOutputsOnHost();
  for (size_t i = 0; i < num_inputs(); ++i) {
    if (!input(i).HasGpuBuffer()) continue;
    input(i).host_memory = memory;
    kept_on_host_ = true;
  }
}

void InferRequest::DropHostCopies() {
  if (!std::exchange(kept_on_host_, false)) return;
  for (InputTensor& input : inputs_) {
    input.host_memory = nullptr;
    input.host_copy.reset();
  }
}

void InferRequest::Release(uint32_t release_flags) {
  if (!lent()) return;  // somebody released it in its backend's place
  DropHostCopies();
  host_inputs_.reset();
  if (!release_hooks_.empty()) {
    if (release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE) SetState(State::kPending);
    const auto hooks = std::move(release_hooks_);
    for (size_t i = hooks.size(); i > 0; --i) hooks[i - 1]->OnRelease(this, release_flags);
    if (release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE) return;
  }
  SetState(State::kReleased);
  if (trace() != nullptr) trace()->Report(TRITONSERVER_TRACE_REQUEST_END, SteadyNowNs());
  sink_->DropSender();
  const auto release_fn = release_fn_;
  void* const release_userp = release_userp_;
  target_->OnReleased();
  Holder holder = Holder::kHost;
  const bool goes_back =
      holder_.compare_exchange_strong(holder, Holder::kClient, std::memory_order_acq_rel);
  release_fn(ToHandle(this), release_flags, release_userp);
  if (!goes_back) delete this;
}

void InferRequest::Fail(Status error, FailureReason reason) {
  if (!uncounted_) {
    target_->statistics().host().RecordFailure(reason, SteadyNowNs() - request_start_ns);
  }
  auto response = InferResponse::NewError(sink_.get(), std::move(error));
  // After a final response that a broken backend sent before it refused, the client has its answer.
  (void)InferResponse::Send(std::move(response), TRITONSERVER_RESPONSE_COMPLETE_FINAL);
  Release(TRITONSERVER_REQUEST_RELEASE_ALL);
}

}  // namespace nereid
