// Forwards responses and counts those that are not read.
#include "backends/python_like_scripted/infer_call.h"

#include <utility>

#include "nereid/log.h"

namespace nereid::python {
namespace {

// Responses of one call that the worker's model has not read. Beyond this, the called model waits.
constexpr size_t kMaxUnreadResponses = 128;
constexpr size_t kMaxUnreadBytes = 16 << 20;
// A model that reads nothing of a call for so long may itself wait for something that the called
// model does after this call. So the called model goes on then.
constexpr std::chrono::seconds kMaxStall{30};

Status WriteParameters(const InferResponse& response, MarshalWriter& writer) {
  NEREID_ASSIGN_OR_RETURN(const uint32_t count, response.ParameterCount());
  writer.Tuple(count);
  for (uint32_t i = 0; i < count; ++i) {
    NEREID_ASSIGN_OR_RETURN(const ParameterView parameter, response.Parameter(i));
    writer.Tuple(2);
    writer.Text(parameter.name);
    switch (parameter.type) {
      case TRITONSERVER_PARAMETER_INT:
        writer.Int(parameter.AsInt());
        break;
      case TRITONSERVER_PARAMETER_BOOL:
        writer.Bool(parameter.AsBool());
        break;
      case TRITONSERVER_PARAMETER_DOUBLE:
        writer.Float(parameter.AsDouble());
        break;
      default:
        writer.Text(parameter.AsString());
    }
  }
  return {};
}

void WriteError(const Status& error, MarshalWriter& writer) {
  writer.Tuple(3);
  writer.Tuple(0);
  writer.Tuple(2);
  writer.Int(static_cast<int64_t>(error.code()));
  writer.Text(error.message());
  writer.Tuple(0);
}

}  // namespace

Status InferCall::Prepare(InferRequest& request) {
  NEREID_ASSIGN_OR_RETURN(const ResponseAllocator* allocator, CallOutputAllocator());
  return request.SetCallbacks(this, *allocator, &target_);
}

Status InferCall::Send(const Server& server, InferRequest request,
                       TRITONSERVER_InferenceTrace* trace) {
  handle_ = request.get();
  self_ = shared_from_this();
  {
    std::lock_guard lock(table_->mutex);
    table_->calls.emplace(number_, self_);
  }
  Status status = server.InferAsync(std::move(request), trace);
  if (status.ok()) return status;
  RemoveFromTable();
  self_.reset();
  return status;
}

void InferCall::PostError(const Status& error, bool is_final) {
  MarshalWriter writer;
  Begin(writer);
  WriteError(error, writer);
  writer.Bool(is_final);
  const Status posted = worker_->Post(writer.Take());
  if (posted.ok() || posted.message() == error.message()) return;
  PostError(posted, is_final);  // no memory for a long text, and the worker waits
}

void InferCall::OnResponse(InferResponse response, bool is_final) noexcept {
  if (!is_final) CountUnread(response.OutputBytes());
  const Status status =
      CatchAll("call", [&] { return ForwardResponse(std::move(response), is_final); });
  if (!status.ok()) LogError(StrCat("call of a model: ", status.message()));
  if (is_final) ReleaseOne();
}

void InferCall::OnRelease(InferRequest request) noexcept {
  released_.emplace(std::move(request));
  ReleaseInputs();
  ReleaseOne();
}

void InferCall::OnConsumed(int64_t count) {
  std::lock_guard lock(unread_mutex_);
  for (; count > 0 && !unread_.empty(); --count) {
    unread_bytes_ -= unread_.front();
    unread_.pop_front();
  }
  if (full_since_.has_value()) full_since_ = Clock::now();
  if (unread_.size() <= kMaxUnreadResponses && unread_bytes_ <= kMaxUnreadBytes) MakeRoom();
}

void InferCall::ReleaseIfStalled(Clock::time_point now) {
  std::lock_guard lock(unread_mutex_);
  if (!full_since_.has_value() || now - *full_since_ < kMaxStall) return;
  LogWarning(StrCat(worker_->label(), ": it has read nothing of its call of another model for ",
                    kMaxStall.count(), " s: further responses queue without a limit"));
  is_unlimited_ = true;
  MakeRoom();
}

Status InferCall::CopyGpuInputs() {
  gpu_inputs.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::optional<GpuRange>& range = inputs[i].gpu;
    if (!range.has_value() || range->size_bytes == 0) continue;
    NEREID_ASSIGN_OR_RETURN(gpu_inputs[i],
                            worker_->gpu().Allocate(range->device, range->size_bytes));
    NEREID_RETURN_IF_ERROR(worker_->gpu().CopyFrom(*range, gpu_inputs[i]->data));
  }
  return {};
}

void InferCall::ReleaseInputs() {
  for (const PackedTensor& input : inputs) {
    if (input.block.has_value()) input.block->Release();
  }
  for (const std::optional<GpuBlock>& input : gpu_inputs) {
    if (input.has_value()) input->token.Release();
  }
}

void InferCall::Begin(MarshalWriter& writer) const {
  writer.Tuple(4);
  writer.Int(static_cast<int64_t>(HostMessage::kStream));
  writer.Int(number_);
}

Status InferCall::ForwardResponse(InferResponse response, bool is_final) {
  if (response.empty()) {
    MarshalWriter writer;
    Begin(writer);
    writer.None();
    writer.Bool(is_final);
    return worker_->Post(writer.Take());
  }
  if (Status error = response.Error(); !error.ok()) {
    PostError(error, is_final);
    return {};
  }
  MarshalWriter writer;
  Begin(writer);
  writer.Tuple(3);
  Status status = WriteOutputs(response, *worker_, writer);
  if (status.ok()) {
    writer.None();
    status = WriteParameters(response, writer);
  }
  if (!status.ok()) {
    PostError(status, is_final);
    return {};
  }
  writer.Bool(is_final);
  SetOwnedByWorker(response, true);
  status = worker_->Post(writer.Take());
  if (status.ok()) return {};
  SetOwnedByWorker(response, false);
  PostError(status, is_final);  // without tensors, so that it fits into the packet
  return {};
}

void InferCall::CountUnread(size_t bytes) {
  std::lock_guard lock(unread_mutex_);
  if (is_unlimited_) return;
  unread_.push_back(bytes);
  unread_bytes_ += bytes;
  const bool is_full = unread_.size() > kMaxUnreadResponses || unread_bytes_ > kMaxUnreadBytes;
  if (!is_full || full_since_.has_value()) return;
  full_since_ = Clock::now();
  table_->num_full.fetch_add(1);
  InferRequest::SetRoom(handle_, false);
  worker_->Wake();  // its thread looks for calls that stall
}

void InferCall::MakeRoom() {
  if (!full_since_.has_value()) return;
  full_since_.reset();
  table_->num_full.fetch_sub(1);
  InferRequest::SetRoom(handle_, true);
}

void InferCall::RemoveFromTable() {
  {
    std::lock_guard lock(unread_mutex_);
    MakeRoom();
  }
  std::shared_ptr<InferCall> kept;  // destroyed behind the lock
  std::lock_guard lock(table_->mutex);
  const auto it = table_->calls.find(number_);
  if (it == table_->calls.end()) return;
  kept = std::move(it->second);
  table_->calls.erase(it);
}

void InferCall::ReleaseOne() {
  if (num_pending_callbacks_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  RemoveFromTable();
  const std::shared_ptr<InferCall> keep = std::move(self_);
}

}  // namespace nereid::python
