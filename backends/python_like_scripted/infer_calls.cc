#include "backends/python_like_scripted/infer_calls.h"

#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/python_like_scripted/tensor_codec.h"
#include "nereid/infer_request.h"
#include "nereid/infer_response.h"
#include "nereid/log.h"
#include "nereid/response_allocator.h"

namespace nereid::scripted {
namespace {

// Where one output of a called model lies: in the caller's shared memory, or here when it is short.
struct OutputPlace {
  std::optional<Block> block;
  bool is_workers = false;  // the message that names the block is on its way
  std::unique_ptr<char[]> bytes;
};

// `request_userp` is the caller's Worker.
struct CallerMemory {
  static Result<OutputBuffer> Allocate(const OutputRequest& output, void* request_userp) {
    auto place = std::make_unique<OutputPlace>();
    OutputBuffer buffer{nullptr};
    if (output.size_bytes > kInlineBytes) {
      SharedRegion& region = static_cast<Worker*>(request_userp)->to_worker();
      NEREID_ASSIGN_OR_RETURN(place->block, region.Allocate(output.size_bytes));
      buffer.base = place->block->data();
    } else {
      place->bytes = std::make_unique<char[]>(output.size_bytes + 1);
      buffer.base = place->bytes.get();
    }
    buffer.userp = place.release();
    return buffer;
  }
  static void Release(const OutputBuffer& buffer, size_t) {
    const std::unique_ptr<OutputPlace> place(static_cast<OutputPlace*>(buffer.userp));
    if (place->block.has_value() && !place->is_workers) place->block->Release();
  }
};

// One for the process; callees may hold responses until its end.
Result<const ResponseAllocator*> Allocator() {
  static const auto* const allocator =
      new Result<ResponseAllocator>(ResponseAllocator::Create<CallerMemory>());
  if (!allocator->ok()) return allocator->status();
  return &allocator->value();
}

Status WriteOutputs(const InferResponse& response, MarshalWriter& writer) {
  NEREID_ASSIGN_OR_RETURN(const uint32_t count, response.OutputCount());
  writer.Tuple(count);
  for (uint32_t i = 0; i < count; ++i) {
    NEREID_ASSIGN_OR_RETURN(const OutputView output, response.Output(i));
    auto* place = static_cast<OutputPlace*>(output.userp);
    const bool is_block = place != nullptr && place->block.has_value();
    const std::string_view bytes(static_cast<const char*>(output.base),
                                 is_block ? 0 : output.size_bytes);
    WriteTensor(output.name, output.datatype, output.shape, bytes,
                is_block ? &*place->block : nullptr, writer);
  }
  return {};
}

void HandOver(const InferResponse& response) {
  const Result<uint32_t> count = response.OutputCount();
  for (uint32_t i = 0; count.ok() && i < *count; ++i) {
    const Result<OutputView> output = response.Output(i);
    if (output.ok() && output->userp != nullptr) {
      static_cast<OutputPlace*>(output->userp)->is_workers = true;
    }
  }
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
      : number_(number), worker_(std::move(worker)), table_(std::move(table)) {}

  // On Ok nothing more is to be done; otherwise no callback comes.
  Status Send(const Server& server, InferRequest request, TRITONSERVER_InferenceTrace* trace) {
    NEREID_ASSIGN_OR_RETURN(const ResponseAllocator* allocator, Allocator());
    NEREID_RETURN_IF_ERROR(request.SetCallbacks(this, *allocator, worker_.get()));
    handle_ = request.get();
    self_ = shared_from_this();
    {
      std::lock_guard lock(table_->mutex);
      table_->calls.emplace(number_, self_);
    }
    Status status = server.InferAsync(std::move(request), trace);
    if (status.ok()) return status;
    if (trace != nullptr) (void)ToStatus(TRITONSERVER_InferenceTraceDelete(trace));
    Forget();
    self_.reset();
    return status;
  }

  // (kind, call, response or None, is_final)
  void PostError(const Status& error, bool is_final) {
    MarshalWriter writer;
    Begin(writer);
    WriteError(error, writer);
    writer.Bool(is_final);
    (void)worker_->Post(writer.Take());
  }

  void Cancel() { (void)InferRequest::Cancel(handle_); }

  void OnResponse(InferResponse response, bool is_final) noexcept override {
    const Status status = CatchAll("call", [&] { return Pass(std::move(response), is_final); });
    if (!status.ok()) LogError(StrCat("call of a model: ", status.message()));
    if (is_final) DropOne();
  }

  void OnRelease(InferRequest request) noexcept override {
    released_.emplace(std::move(request));
    for (const PackedTensor& input : inputs) {
      if (input.block.has_value()) input.block->Release();
    }
    DropOne();
  }

  std::vector<PackedTensor> inputs;  // until the release
  std::string message;               // which inline tensors are part of

 private:
  void Begin(MarshalWriter& writer) const {
    writer.Tuple(4);
    writer.Int(static_cast<int64_t>(HostMessage::kStream));
    writer.Int(number_);
  }

  Status Pass(InferResponse response, bool is_final) {
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
    Status status = WriteOutputs(response, writer);
    if (status.ok()) {
      writer.None();
      status = WriteParameters(response, writer);
    }
    if (!status.ok()) {
      PostError(status, is_final);
      return {};
    }
    writer.Bool(is_final);
    HandOver(response);
    return worker_->Post(writer.Take());
  }

  void Forget() {
    std::shared_ptr<InferCall> kept;
    std::lock_guard lock(table_->mutex);
    const auto it = table_->calls.find(number_);
    if (it == table_->calls.end()) return;
    kept = std::move(it->second);
    table_->calls.erase(it);
  }

  // After the second of final response and release nothing comes any more.
  void DropOne() {
    if (num_halves_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    Forget();
    const std::shared_ptr<InferCall> keep = std::move(self_);
  }

  const int64_t number_;
  const std::shared_ptr<Worker> worker_;
  const std::shared_ptr<InferCalls::Table> table_;
  TRITONSERVER_InferenceRequest* handle_ = nullptr;  // valid as long as this object
  std::optional<InferRequest> released_;             // handle_'s owner after the release
  std::shared_ptr<InferCall> self_;
  std::atomic<int> num_halves_{2};
};

InferCalls::InferCalls(Server server, OpenRequests& open, std::shared_ptr<Worker> worker)
    : server_(std::move(server)), open_(open), worker_(std::move(worker)) {}

namespace {

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
  bool takes_stream = false;
};

// ((model, version, id, correlation id, flags, timeout, parameters, outputs, inputs, trace),
// stream)
PackedCall ReadCall(MarshalReader& reader, SharedRegion& region) {
  PackedCall call;
  reader.TupleOf(2);
  reader.TupleOf(10);
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
  call.takes_stream = reader.Bool();
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

Result<InferRequest> MakeRequest(const Server& server, const PackedCall& call) {
  const char* model = call.model_name.c_str();
  NEREID_ASSIGN_OR_RETURN(InferRequest request, server.NewRequest(model, call.model_version));
  NEREID_ASSIGN_OR_RETURN(const bool is_decoupled, server.IsDecoupled(model, call.model_version));
  if (is_decoupled && !call.takes_stream) {
    return UnsupportedError("Model ", model,
                            " is using the decoupled. The current BLS request call ",
                            "doesn't support models using the decoupled transaction policy. ",
                            "Please use exec(decoupled=True) or async_exec(decoupled=True).");
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
  for (const std::string& output : call.outputs) {
    NEREID_RETURN_IF_ERROR(request.AddRequestedOutput(output.c_str()));
  }
  for (const PackedTensor& input : call.inputs) {
    const std::string name(input.name);
    const std::string_view bytes = input.bytes();
    NEREID_RETURN_IF_ERROR(request.AddInput(name.c_str(), ToC(input.datatype), input.shape));
    NEREID_RETURN_IF_ERROR(request.AppendInputData(name.c_str(), bytes.data(), bytes.size()));
  }
  return request;
}

}  // namespace

Status InferCalls::Start(int64_t number, MarshalReader& reader) {
  auto call = std::make_shared<InferCall>(number, worker_, table_);
  // The message's own copy: inline tensors are read from it as long as the model runs.
  call->message = std::string(reader.rest());
  MarshalReader own(call->message);
  PackedCall packed = ReadCall(own, worker_->from_worker());
  NEREID_RETURN_IF_ERROR(own.Finish());
  call->inputs = std::move(packed.inputs);
  packed.inputs = call->inputs;
  Result<InferRequest> request = MakeRequest(server_, packed);
  Status status = std::move(request).status();
  if (status.ok()) {
    status = call->Send(server_, std::move(*request), ChildTrace(packed.trace_key));
  }
  if (status.ok()) return status;
  for (const PackedTensor& input : call->inputs) {
    if (input.block.has_value()) input.block->Release();
  }
  call->PostError(status, /*is_final=*/true);
  return {};
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

void InferCalls::CancelAll() {
  std::vector<std::shared_ptr<InferCall>> calls;
  {
    std::lock_guard lock(table_->mutex);
    for (const auto& [number, call] : table_->calls) calls.push_back(call);
  }
  for (const auto& call : calls) call->Cancel();
}

}  // namespace nereid::scripted
