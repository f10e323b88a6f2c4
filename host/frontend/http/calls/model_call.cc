// The hand-over between the backend's thread and the loop.
#include "host/frontend/http/calls/model_call.h"

#include <utility>

namespace nereid::http {

ModelCall::ModelCall(KServeContext& context, Connection& connection, Body body, InputTensors inputs)
    : context_(context),
      loop_(connection.loop()),
      connection_(&connection),
      body_(std::move(body)),
      inputs_(std::move(inputs)),
      request_(nullptr) {
  context_.num_calls.fetch_add(1, std::memory_order_relaxed);
}

ModelCall::~ModelCall() {
  request_ = InferRequest(nullptr);
  context_.num_calls.fetch_sub(1, std::memory_order_release);
}

Status ModelCall::Launch(std::unique_ptr<ModelCall> call, InferRequest request,
                         TracedRequest trace) {
  NEREID_RETURN_IF_ERROR(
      request.SetCallbacks(call.get(), call->context_.allocator, call->shared_outputs()));
  call->handle_ = request.get();
  call->trace_ = std::move(trace);
  TRITONSERVER_InferenceTrace* const core_trace = MakeCoreTrace(call->trace_);
  Status status = call->context_.server.InferAsync(std::move(request), core_trace);
  if (!status.ok()) return status;
  // The model may have answered already, but nothing was dealt with: that happens on this thread.
  // Not so the release: from here on the call may belong to itself alone.
  ModelCall* const launched = call.release();
  launched->connection_->BeginCall(launched);
  return Status::Ok();
}

// [backend thread]
void ModelCall::OnResponse(InferResponse response, bool is_final) noexcept {
  EventLoop& loop = loop_;
  if (!response.empty()) NoteTrace(trace_, "INFER_RESPONSE_COMPLETE");
  bool must_post;
  {
    const std::lock_guard lock(events_mutex_);
    events_.push_back({std::move(response), is_final});
    must_post = !std::exchange(is_posted_, true);
  }
  // If it was posted before, the loop may have dealt with this event already, and the call be gone.
  if (must_post) loop.Post(this);
}

// [backend thread]
void ModelCall::OnRelease(InferRequest request) noexcept {
  request_ = std::move(request);
  SetStage(kReleased);
}

void ModelCall::SetStage(unsigned stage) {
  const unsigned before = stage_.fetch_or(stage, std::memory_order_acq_rel);
  if ((before | stage) == (kReleased | kLoopIsDone)) delete this;
}

void ModelCall::RunOnLoop() {
  Events events;
  {
    const std::lock_guard lock(events_mutex_);
    events = std::exchange(events_, {});
    is_posted_ = false;
  }
  bool is_final = false;
  for (Event& event : events) {
    if (connection_ != nullptr && !event.response.empty()) {
      OnModelResponse(std::move(event.response));
    }
    is_final = is_final || event.is_final;
  }
  if (!is_final) return;
  EndSharedUse();
  NoteTrace(trace_, "HTTP_SEND_START");
  if (connection_ != nullptr) OnModelEnd();
  NoteTrace(trace_, "HTTP_SEND_END");
  connection_ = nullptr;
  events.clear();
  SetStage(kLoopIsDone);
}

// Before the client hears: with the answer in its hands it may unregister its regions.
void ModelCall::EndSharedUse() {
  for (InputTensor& input : inputs_) input.block.use.reset();
  std::vector<SharedOutput>* const outputs = shared_outputs();
  if (outputs == nullptr) return;
  for (SharedOutput& output : *outputs) output.block.use.reset();
}

Status ModelCall::CheckShared() {
  for (const InputTensor& input : inputs_) NEREID_RETURN_IF_ERROR(input.block.CheckTouched());
  const std::vector<SharedOutput>* const outputs = shared_outputs();
  if (outputs == nullptr) return Status::Ok();
  for (const SharedOutput& output : *outputs) NEREID_RETURN_IF_ERROR(output.block.CheckTouched());
  return Status::Ok();
}

void ModelCall::OnDisconnect() {
  connection_ = nullptr;
  Cancel();
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

}  // namespace nereid::http
