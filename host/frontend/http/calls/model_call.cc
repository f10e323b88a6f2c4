// Passes responses from the backend's threads to the loop.
#include "host/frontend/http/calls/model_call.h"

#include <new>
#include <utility>

#include "host/frontend/frontend_state.h"

namespace nereid::http {
namespace {

constexpr size_t kEventBytes = 256;  // estimated memory of a response besides its outputs

}  // namespace

ModelCall::ModelCall(KServeContext& context, HttpConnection& connection, RequestBody&& body,
                     InputTensors&& inputs)
    : context_(context),
      loop_(connection.loop()),
      connection_(&connection),
      body_(std::move(body)),
      inputs_(std::move(inputs)),
      request_(nullptr),
      max_unsent_bytes_(connection.limits().max_unsent_bytes) {
  context_.num_calls.fetch_add(1, std::memory_order_relaxed);
}

ModelCall::~ModelCall() {
  request_ = InferRequest(nullptr);
  context_.num_calls.fetch_sub(1, std::memory_order_release);
}

Status ModelCall::Launch(std::unique_ptr<ModelCall> call, InferRequest request,
                         TracedRequest trace) {
  // The model may already have answered, but responses are handled only on this thread, so that the
  // call still exists here.
  ModelCall* const launched = call.get();
  NEREID_RETURN_IF_ERROR(LaunchPart(std::move(call), std::move(request), std::move(trace)));
  launched->connection_->BeginCall(launched);
  return Status::Ok();
}

Status ModelCall::LaunchPart(std::unique_ptr<ModelCall> call, InferRequest request,
                             TracedRequest trace) {
  NEREID_RETURN_IF_ERROR(
      request.SetCallbacks(call.get(), call->context_.allocator, call->shared_outputs()));
  call->handle_ = request.get();
  call->trace_ = std::move(trace);
  TRITONSERVER_InferenceTrace* const core_trace = MakeCoreTrace(call->trace_);
  Status status = call->context_.server.InferAsync(std::move(request), core_trace);
  if (!status.ok()) return status;
  // The request may already have been released, so from now on the call may delete itself, once its
  // responses have been handled.
  (void)call.release();
  return Status::Ok();
}

// [backend thread]
void ModelCall::OnResponse(InferResponse response, bool is_final) noexcept {
  net::EventLoop& loop = loop_;
  if (!response.empty()) RecordTraceEvent(trace_, "INFER_RESPONSE_COMPLETE");
  if (!is_final && drops_responses_.load(std::memory_order_relaxed)) return;
  const size_t size_bytes = is_final ? 0 : kEventBytes + response.OutputBytes();
  bool must_post;
  {
    const std::lock_guard lock(events_mutex_);
    try {
      if (!response.empty()) Queue(std::move(response), size_bytes);
    } catch (const std::bad_alloc&) {
      has_lost_response_ = true;
    }
    has_ended_ = has_ended_ || is_final;
    must_post = !std::exchange(is_posted_, true);
  }
  // If the call was already posted, the loop may have handled this event and deleted the call.
  if (must_post) loop.Post(this);
}

// [backend thread] Requires events_mutex_. The final response counts no bytes.
void ModelCall::Queue(InferResponse response, size_t size_bytes) {
  events_.push_back({std::move(response), size_bytes});
  const size_t unsent_bytes = queued_bytes_.fetch_add(size_bytes) + size_bytes + unsent_bytes_;
  if (size_bytes > 0 && unsent_bytes > max_unsent_bytes_ && has_room_.exchange(false)) {
    InferRequest::SetRoom(handle_, false);
  }
}

// [backend thread]
void ModelCall::OnRelease(InferRequest request) noexcept {
  request_ = std::move(request);
  AddStage(kRequestReleased);
}

void ModelCall::AddStage(unsigned stage) {
  const unsigned before = stage_.fetch_or(stage, std::memory_order_acq_rel);
  if ((before | stage) == (kRequestReleased | kResponsesHandled)) delete this;
}

void ModelCall::RunOnLoop() {
  Events events;
  bool has_ended, has_lost_response;
  {
    const std::lock_guard lock(events_mutex_);
    events = std::exchange(events_, {});
    has_ended = has_ended_;
    has_lost_response = has_lost_response_;
    is_posted_ = false;
  }
  for (Event& event : events) {
    AnswerOrFail([&] { OnModelResponse(std::move(event.response)); });
    event.response = InferResponse();
    unsent_bytes_ = connection_ != nullptr ? connection_->unsent_bytes() : 0;
    queued_bytes_.fetch_sub(event.size_bytes);
  }
  if (has_lost_response) FailForMemory();
  if (!has_ended) return UpdateRoom();
  ReleaseSharedMemory();
  RecordTraceEvent(trace_, "HTTP_SEND_START");
  AnswerOrFail([&] { OnModelEnd(); });
  RecordTraceEvent(trace_, "HTTP_SEND_END");
  connection_ = nullptr;
  events.clear();
  AddStage(kResponsesHandled);
}

template <typename Work>
void ModelCall::AnswerOrFail(const Work& work) {
  if (connection_ == nullptr) return;
  try {
    work();
  } catch (const std::bad_alloc&) {
    FailForMemory();
  }
}

void ModelCall::FailForMemory() {
  if (connection_ == nullptr) return;
  HttpConnection* const connection = connection_;
  DetachClient();
  Cancel();
  AnswerMemoryFailure(*connection);
}

// Runs before the client is answered, because it may then unregister its regions.
void ModelCall::ReleaseSharedMemory() {
  for (InputTensor& input : inputs_) input.mapped.use_count.reset();
  std::vector<SharedOutput>* const outputs = shared_outputs();
  if (outputs == nullptr) return;
  for (SharedOutput& output : *outputs) output.range.use_count.reset();
}

Status ModelCall::CheckSharedMemory() {
  for (const InputTensor& input : inputs_) NEREID_RETURN_IF_ERROR(input.mapped.CheckIntact());
  const std::vector<SharedOutput>* const outputs = shared_outputs();
  if (outputs == nullptr) return Status::Ok();
  for (const SharedOutput& output : *outputs) NEREID_RETURN_IF_ERROR(output.range.CheckIntact());
  return Status::Ok();
}

void ModelCall::OnDisconnect() {
  DetachClient();
  Cancel();
}

void ModelCall::OnOutputSent(size_t unsent_bytes) {
  unsent_bytes_ = unsent_bytes;
  UpdateRoom();
}

// A thread that reports that there is no room has queued a response before, so that this function
// runs once more afterwards.
void ModelCall::UpdateRoom() {
  if (has_room_) return;
  const std::lock_guard lock(events_mutex_);
  if (queued_bytes_ + unsent_bytes_ > max_unsent_bytes_) return;
  has_room_ = true;
  InferRequest::SetRoom(handle_, true);
}

std::string ModelCall::ExtraHeaders() const {
  if (orca_ == OrcaFormat::kNone) return "";
  const Result<MetricsPage> metrics = context_.server.Metrics();
  if (!metrics.ok()) return "";
  const Result<std::string_view> page = metrics->PrometheusText();
  return page.ok() ? OrcaHeader(orca_, *page) : "";
}

void ModelCall::Cancel() {
  (void)InferRequest::Cancel(handle_);
}

TracedRequest SampleTrace(const KServeContext& context, const HttpConnection& connection,
                          const RequestHead& head, const RequestedModel& model) {
  TracedRequest trace = context.state.tracer->Sample(model.name, head.Header("traceparent"));
  if (trace == nullptr) return trace;
  trace->Add("HTTP_RECV_START", connection.request_start_ns());
  RecordTraceEvent(trace, "HTTP_RECV_END");
  return trace;
}

}  // namespace nereid::http
