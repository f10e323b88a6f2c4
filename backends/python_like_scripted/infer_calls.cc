#include "backends/python_like_scripted/infer_calls.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/python_like_scripted/call_outputs.h"
#include "backends/python_like_scripted/tensor_codec.h"
#include "nereid/infer_request.h"
#include "nereid/infer_response.h"
#include "nereid/log.h"

namespace nereid::python {
namespace {

using Clock = std::chrono::steady_clock;

// Responses of one call that the worker's model has not read. Beyond this, the called model waits.
constexpr size_t kMaxUnreadResponses = 128;
constexpr size_t kMaxUnreadBytes = 16 << 20;
// A model that reads nothing of a call for so long may itself wait for something that the called
// model does after this call. So the called model goes on then.
constexpr std::chrono::seconds kMaxStall{30};

size_t OutputBytes(const InferResponse& response) {
  const Result<uint32_t> count = response.OutputCount();
  size_t bytes = 0;
  for (uint32_t i = 0; count.ok() && i < *count; ++i) {
    const Result<OutputView> output = response.Output(i);
    if (output.ok()) bytes += output->size_bytes;
  }
  return bytes;
}

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

class InferCall : public InferObserver, public std::enable_shared_from_this<InferCall> {
 public:
  InferCall(int64_t number, std::shared_ptr<Worker> worker,
            std::shared_ptr<InferCalls::Table> table)
      : number_(number), worker_(std::move(worker)), table_(std::move(table)), target_{*worker_} {}
  void PreferGpu(int64_t gpu_id) { target_.gpu_id = gpu_id; }

  Status Prepare(InferRequest& request) {
    NEREID_ASSIGN_OR_RETURN(const ResponseAllocator* allocator, CallOutputAllocator());
    return request.SetCallbacks(this, *allocator, &target_);
  }

  // If Ok, the callbacks follow. Otherwise none does, and the caller handles the error. Owns
  // `trace` in both cases.
  Status Send(const Server& server, InferRequest request, TRITONSERVER_InferenceTrace* trace) {
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

  // (kind, call, response or None, is_final)
  void PostError(const Status& error, bool is_final) {
    MarshalWriter writer;
    Begin(writer);
    WriteError(error, writer);
    writer.Bool(is_final);
    const Status posted = worker_->Post(writer.Take());
    if (posted.ok() || posted.message() == error.message()) return;
    PostError(posted, is_final);  // no memory for a long text, and the worker waits
  }

  void Cancel() { (void)InferRequest::Cancel(handle_); }

  void OnResponse(InferResponse response, bool is_final) noexcept override {
    if (!is_final) CountUnread(OutputBytes(response));
    const Status status =
        CatchAll("call", [&] { return ForwardResponse(std::move(response), is_final); });
    if (!status.ok()) LogError(StrCat("call of a model: ", status.message()));
    if (is_final) ReleaseOne();
  }

  void OnRelease(InferRequest request) noexcept override {
    released_.emplace(std::move(request));
    ReleaseInputs();
    ReleaseOne();
  }

  void OnConsumed(int64_t count) {
    std::lock_guard lock(unread_mutex_);
    for (; count > 0 && !unread_.empty(); --count) {
      unread_bytes_ -= unread_.front();
      unread_.pop_front();
    }
    if (full_since_.has_value()) full_since_ = Clock::now();
    if (unread_.size() <= kMaxUnreadResponses && unread_bytes_ <= kMaxUnreadBytes) MakeRoom();
  }

  void ReleaseIfStalled(Clock::time_point now) {
    std::lock_guard lock(unread_mutex_);
    if (!full_since_.has_value() || now - *full_since_ < kMaxStall) return;
    LogWarning(StrCat(worker_->label(), ": it has read nothing of its call of another model for ",
                      kMaxStall.count(), " s: further responses queue without a limit"));
    is_unlimited_ = true;
    MakeRoom();
  }

  // Copies inputs in GPU memory, so that the worker can have its memory back.
  Status CopyGpuInputs() {
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
  void ReleaseInputs() {
    for (const PackedTensor& input : inputs) {
      if (input.block.has_value()) input.block->Release();
    }
    for (const std::optional<GpuBlock>& input : gpu_inputs) {
      if (input.has_value()) input->token.Release();
    }
  }

  std::vector<PackedTensor> inputs;                 // valid until OnRelease
  std::vector<std::optional<GpuBlock>> gpu_inputs;  // copies of those in GPU memory, by index
  std::string message;                              // contains the bytes of inline tensors

 private:
  void Begin(MarshalWriter& writer) const {
    writer.Tuple(4);
    writer.Int(static_cast<int64_t>(HostMessage::kStream));
    writer.Int(number_);
  }

  Status ForwardResponse(InferResponse response, bool is_final) {
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

  void CountUnread(size_t bytes) {
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

  // Requires unread_mutex_.
  void MakeRoom() {
    if (!full_since_.has_value()) return;
    full_since_.reset();
    table_->num_full.fetch_sub(1);
    InferRequest::SetRoom(handle_, true);
  }

  void RemoveFromTable() {
    {
      std::lock_guard lock(unread_mutex_);
      MakeRoom();
    }
    std::shared_ptr<InferCall> kept;
    std::lock_guard lock(table_->mutex);
    const auto it = table_->calls.find(number_);
    if (it == table_->calls.end()) return;
    kept = std::move(it->second);
    table_->calls.erase(it);
  }

  // The final response and the release come in any order; after both no callback follows.
  void ReleaseOne() {
    if (num_pending_callbacks_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    RemoveFromTable();
    const std::shared_ptr<InferCall> keep = std::move(self_);
  }

  const int64_t number_;
  const std::shared_ptr<Worker> worker_;
  const std::shared_ptr<InferCalls::Table> table_;
  CallOutputTarget target_;
  TRITONSERVER_InferenceRequest* handle_ = nullptr;  // valid during this object's life
  std::optional<InferRequest> released_;             // owns handle_ after OnRelease
  std::shared_ptr<InferCall> self_;
  std::atomic<int> num_pending_callbacks_{2};

  std::mutex unread_mutex_;    // guards the members below
  std::deque<size_t> unread_;  // bytes of each response that is not known to be read
  size_t unread_bytes_ = 0;
  std::optional<Clock::time_point> full_since_;  // set while the called model has to wait
  bool is_unlimited_ = false;
};

InferCalls::InferCalls(Server server, OpenRequests& open, std::shared_ptr<Worker> worker)
    : server_(std::move(server)), open_(open), worker_(std::move(worker)) {}

struct PackedCall {
  std::string model_name;
  int64_t model_version = -1;
  std::string id, correlation_text;
  uint64_t correlation_number = 0;
  int64_t flags = 0;
  uint64_t timeout_us = 0;
  std::vector<PackedParameter> parameters;
  std::vector<std::string> outputs;
  std::vector<PackedTensor> inputs;
  uint64_t trace_key = 0;
  int64_t gpu_id = -1;
  bool accepts_stream = false;
};

namespace {

// ((model, version, id, correlation id, flags, timeout, parameters, outputs, inputs, trace,
// preferred GPU), accepts_stream)
PackedCall ReadCall(MarshalReader& reader, SharedRegion& region) {
  PackedCall call;
  reader.TupleOf(2);
  reader.TupleOf(11);
  call.model_name = reader.Text();
  call.model_version = reader.Int();
  call.id = reader.Text();
  if (reader.Next() == 'u') {
    call.correlation_text = reader.Text();
  } else {
    call.correlation_number = static_cast<uint64_t>(reader.Int());
  }
  call.flags = reader.Int();
  call.timeout_us = static_cast<uint64_t>(reader.Int());
  call.parameters = ReadParameters(reader);
  const uint32_t num_outputs = reader.Tuple();
  for (uint32_t i = 0; i < num_outputs && reader.status().ok(); ++i) {
    call.outputs.emplace_back(reader.Text());
  }
  const uint32_t num_inputs = reader.Tuple();
  for (uint32_t i = 0; i < num_inputs && reader.status().ok(); ++i) {
    call.inputs.push_back(ReadTensor(reader, region));
  }
  call.trace_key = static_cast<uint64_t>(reader.Int());
  call.gpu_id = reader.Int();
  call.accepts_stream = reader.Bool();
  return call;
}

Status SetParameter(const PackedParameter& parameter, InferRequest& request) {
  const std::string name(parameter.name);
  switch (parameter.kind) {
    case PackedParameter::Kind::kText:
      return request.SetParameter(name.c_str(), std::string(parameter.text).c_str());
    case PackedParameter::Kind::kInt:
      return request.SetParameter(name.c_str(), parameter.number);
    case PackedParameter::Kind::kBool:
      return request.SetParameter(name.c_str(), parameter.number != 0);
    case PackedParameter::Kind::kDouble:
      return request.SetParameter(name.c_str(), parameter.real);
  }
  return {};
}

Status AddInput(const PackedTensor& input, const std::optional<GpuBlock>& on_gpu,
                InferRequest& request) {
  const std::string name(input.name);
  NEREID_RETURN_IF_ERROR(request.AddInput(name.c_str(), ToC(input.datatype), input.shape));
  if (on_gpu.has_value()) {
    return request.AppendInputData(name.c_str(), on_gpu->data, on_gpu->range.size_bytes,
                                   TRITONSERVER_MEMORY_GPU, on_gpu->range.device);
  }
  const std::string_view bytes = input.bytes();
  return request.AppendInputData(name.c_str(), bytes.data(), bytes.size());
}

// Returns the text that Triton uses for a model that does not exist or is not ready. Models may
// compare it.
Status ModelNotReadyError(const Server& server, const PackedCall& call, const Status& error) {
  const Result<bool> is_ready = server.IsModelReady(call.model_name.c_str(), call.model_version);
  if (is_ready.ok() && *is_ready) return error;
  return UnavailableError("Failed for execute the inference request. Model '", call.model_name,
                          "' is not ready.");
}

Result<InferRequest> MakeRequest(const Server& server, const PackedCall& call,
                                 const InferCall& inputs) {
  const char* model = call.model_name.c_str();
  Result<InferRequest> made = server.NewRequest(model, call.model_version);
  if (!made.ok()) return ModelNotReadyError(server, call, made.status());
  InferRequest request = std::move(*made);
  NEREID_ASSIGN_OR_RETURN(const bool is_decoupled, server.IsDecoupled(model, call.model_version));
  if (is_decoupled && !call.accepts_stream) {
    return UnsupportedError(
        "Model ", model,
        " is using the decoupled. The current BLS request call doesn't support models using the "
        "decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or "
        "'async_exec' calls for decoupled models.'");
  }
  NEREID_RETURN_IF_ERROR(request.SetId(call.id.c_str()));
  if (!call.correlation_text.empty()) {
    NEREID_RETURN_IF_ERROR(request.SetCorrelationId(call.correlation_text.c_str()));
  } else {
    NEREID_RETURN_IF_ERROR(request.SetCorrelationId(call.correlation_number));
  }
  NEREID_RETURN_IF_ERROR(request.SetFlags(static_cast<uint32_t>(call.flags)));
  NEREID_RETURN_IF_ERROR(request.SetTimeoutUs(call.timeout_us));
  for (const PackedParameter& parameter : call.parameters) {
    NEREID_RETURN_IF_ERROR(SetParameter(parameter, request));
  }
  // As in Triton, the names form a set.
  const std::set<std::string> outputs(call.outputs.begin(), call.outputs.end());
  for (const std::string& output : outputs) {
    NEREID_RETURN_IF_ERROR(request.AddRequestedOutput(output.c_str()));
  }
  for (size_t i = 0; i < inputs.inputs.size(); ++i) {
    NEREID_RETURN_IF_ERROR(AddInput(inputs.inputs[i], inputs.gpu_inputs[i], request));
  }
  return request;
}

}  // namespace

Status InferCalls::Start(int64_t number, MarshalReader& reader) {
  auto call = std::make_shared<InferCall>(number, worker_, table_);
  // Keeps a copy of the message, because inline tensors are read from it while the model runs.
  call->message = std::string(reader.rest());
  MarshalReader own(call->message);
  PackedCall packed = ReadCall(own, worker_->from_worker());
  NEREID_RETURN_IF_ERROR(own.Finish());
  call->inputs = std::move(packed.inputs);
  call->PreferGpu(packed.gpu_id);
  Status status = call->CopyGpuInputs();
  if (status.ok()) status = Send(packed, *call);
  if (status.ok()) return status;
  call->ReleaseInputs();
  // As in Triton, a call that could not be started fails with INTERNAL, whatever the reason.
  call->PostError(InternalError("Model ", packed.model_name,
                                " - Error when running inference: ", status.message()),
                  /*is_final=*/true);
  return {};
}

Status InferCalls::Send(const PackedCall& packed, InferCall& call) {
  NEREID_ASSIGN_OR_RETURN(InferRequest request, MakeRequest(server_, packed, call));
  NEREID_RETURN_IF_ERROR(call.Prepare(request));
  return call.Send(server_, std::move(request), ChildTrace(packed.trace_key));
}

TRITONSERVER_InferenceTrace* InferCalls::ChildTrace(uint64_t request_key) {
  TRITONSERVER_InferenceTrace* child = nullptr;
  if (request_key == 0) return nullptr;
  (void)open_.With(request_key, [&](Request& request) -> Status {
    TRITONSERVER_InferenceTrace* parent = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestTrace(request.handle(), &parent)));
    if (parent == nullptr) return {};
    return ToStatus(TRITONSERVER_InferenceTraceSpawnChildTrace(parent, &child));
  });
  return child;
}

void InferCalls::Cancel(int64_t number) {
  std::shared_ptr<InferCall> call;
  {
    std::lock_guard lock(table_->mutex);
    const auto it = table_->calls.find(number);
    if (it != table_->calls.end()) call = it->second;
  }
  if (call != nullptr) call->Cancel();
}

void InferCalls::OnConsumed(int64_t number, int64_t count) {
  std::shared_ptr<InferCall> call;
  {
    std::lock_guard lock(table_->mutex);
    const auto it = table_->calls.find(number);
    if (it != table_->calls.end()) call = it->second;
  }
  if (call != nullptr) call->OnConsumed(count);
}

bool InferCalls::ReleaseStalled() {
  if (table_->num_full.load() == 0) return false;
  std::vector<std::shared_ptr<InferCall>> calls;
  {
    std::lock_guard lock(table_->mutex);
    for (const auto& [number, call] : table_->calls) calls.push_back(call);
  }
  for (const auto& call : calls) call->ReleaseIfStalled(Clock::now());
  return table_->num_full.load() != 0;
}

void InferCalls::CancelAll() {
  std::vector<std::shared_ptr<InferCall>> calls;
  {
    std::lock_guard lock(table_->mutex);
    for (const auto& [number, call] : table_->calls) calls.push_back(call);
  }
  for (const auto& call : calls) call->Cancel();
}

}  // namespace nereid::python
