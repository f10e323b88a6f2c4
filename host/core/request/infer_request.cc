// The life cycle of a request; infer_request_tensors.cc has its tensors.
#include "host/core/request/infer_request.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "host/core/observe/log.h"
#include "host/core/observe/trace.h"
#include "host/core/request/infer_response.h"
#include "host/core/request/request_check.h"
#include "nereid/data_type.h"

namespace nereid::core {
namespace {

std::string ToText(const CorrelationId& id) {
  const auto* number = std::get_if<uint64_t>(&id);
  return number != nullptr ? std::to_string(*number) : std::get<std::string>(id);
}

std::string ToHex(uint32_t flags) {
  char text[16];
  std::snprintf(text, sizeof(text), "0x%x", flags);
  return text;
}

// Describes a prepared request for the verbose log, in Triton's format: ids, parameters and
// tensors.
std::string DescribeRequest(const InferRequest& request) {
  const RequestSchema& schema = request.schema();
  std::string text =
      StrCat("request id: ", request.id(), ", model: ", schema.model_name,
             ", requested version: ", request.requested_version(),
             ", actual version: ", schema.model_version, ", flags: ", ToHex(request.flags()),
             ", correlation id: ", ToText(request.correlation_id()),
             ", batch size: ", request.batch_size(), ", priority: ", request.priority(),
             ", timeout (us): ", request.timeout_us(), "\ninputs:\n");
  for (size_t i = 0; i < request.num_inputs(); ++i) {
    const InputTensor& input = request.input(i);
    text += StrCat("input: ", input.name, ", type: ", Name(input.data_type),
                   ", original shape: ", ShapeText(input.client_shape),
                   ", shape: ", ShapeText(input.shape), "\n");
  }
  text += "requested outputs:\n";
  for (size_t i = 0; i < request.num_outputs(); ++i) text += StrCat(request.output_name(i), "\n");
  return text;
}

}  // namespace

InferRequest::InferRequest(std::shared_ptr<RequestTarget> target, int64_t requested_version)
    : target_(std::move(target)), requested_version_(requested_version) {
  priority_ = schema().default_priority_level;
}

void InferRequest::set_priority(uint64_t priority) {
  const bool unknown = priority == 0 || priority > schema().priority_levels;
  priority_ = unknown ? schema().default_priority_level : priority;
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

void InferRequest::set_release_callback(TRITONSERVER_InferenceRequestReleaseFn_t fn, void* userp) {
  release_fn_ = fn;
  release_userp_ = userp;
}

std::string InferRequest::LogPrefix() const {
  return RequestLogPrefix(id_);
}

Status InferRequest::Prepare(InferenceTrace* trace) {
  if (in_flight()) {
    return InvalidArgError(LogPrefix(), "request to model '", schema().model_name,
                           "' is still in flight");
  }
  if (!unknown_outputs_.empty()) {
    return InvalidArgError("unexpected inference output '", unknown_outputs_.front(),
                           "' for model '", schema().model_name, "'");
  }
  request_start_ns = SteadyNowNs();
  queue_deadline_ns = 0;
  NEREID_RETURN_IF_ERROR(
      CheckInputs(schema(), id_, {inputs_.data(), inputs_.size()}, &batch_size_));
  if (callbacks_.response_fn == nullptr || callbacks_.allocator == nullptr) {
    return InvalidArgError(LogPrefix(), "no response callback is set");
  }
  if (release_fn_ == nullptr) {
    return InvalidArgError(LogPrefix(), "no release callback is set");
  }
  if (trace != nullptr) {
    NEREID_RETURN_IF_ERROR(trace->Begin(schema().model_name, schema().model_version, id_));
    trace->Report(TRITONSERVER_TRACE_REQUEST_START, request_start_ns);
  }
  sink_ = ResponseSinkRef(new ResponseSink(target_, id_, callbacks_));
  sink_->set_trace(trace);
  if (const ResponseSinkRef source = std::move(room_source_); source.get() != nullptr) {
    sink_->SetRoomSource(source.get());
  }
  owner_.store(Owner::kHost, std::memory_order_release);
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
  if (trace() != nullptr) trace()->CancelBegin();
  sink_->set_trace(nullptr);
  sink_->Abandon();
  sink_->DropSender();
  sink_ = ResponseSinkRef();
  owner_.store(Owner::kClient, std::memory_order_release);
}

Status InferRequest::Delete(InferRequest* request) {
  Owner owner = request->owner_.load(std::memory_order_acquire);
  if (owner == Owner::kHost) {
    if (!request->sink_->has_ended()) {
      return InvalidArgError(request->LogPrefix(), "cannot delete a request that is in flight");
    }
    const bool deferred = request->owner_.compare_exchange_strong(
        owner, Owner::kHostAfterDelete, std::memory_order_acq_rel, std::memory_order_acquire);
    if (deferred) return Status::Ok();
  }
  if (owner == Owner::kHostAfterDelete) {
    return InvalidArgError(request->LogPrefix(), "request was deleted before");
  }
  delete request;
  return Status::Ok();
}

void InferRequest::SetRoomSource(ResponseSink* source) {
  source->AddRef();
  room_source_ = ResponseSinkRef(source);
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

void InferRequest::UseHostMemory(MemoryManager* memory) {
  sink_->KeepOutputsInHostMemory();
  for (size_t i = 0; i < num_inputs(); ++i) {
    if (!input(i).HasGpuBuffer()) continue;
    input(i).host_memory = memory;
    uses_host_memory_ = true;
  }
}

void InferRequest::DropHostCopies() {
  if (!std::exchange(uses_host_memory_, false)) return;
  for (InputTensor& input : inputs_) {
    input.host_memory = nullptr;
    input.host_copy.reset();
  }
}

void InferRequest::Release(uint32_t release_flags) {
  if (!in_flight()) return;  // the request was released by someone other than its backend before
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
  Owner owner = Owner::kHost;
  const bool goes_back =
      owner_.compare_exchange_strong(owner, Owner::kClient, std::memory_order_acq_rel);
  release_fn(ToHandle(this), release_flags, release_userp);
  if (!goes_back) delete this;
}

void InferRequest::Fail(Status error, FailureReason reason) {
  if (!excluded_from_statistics_) {
    target_->statistics().host().RecordFailure(reason, SteadyNowNs() - request_start_ns);
  }
  auto response = InferResponse::NewError(sink_.get(), std::move(error));
  // Send fails if a faulty backend sent a final response before it rejected the request. The client
  // has its final response then.
  (void)InferResponse::Send(std::move(response), TRITONSERVER_RESPONSE_COMPLETE_FINAL);
  Release(TRITONSERVER_REQUEST_RELEASE_ALL);
}

}  // namespace nereid::core
