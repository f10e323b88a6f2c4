// Reads calls from the worker's messages, makes requests of them, and finds the calls in flight.
#include "backends/python_like_scripted/infer_calls.h"

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/python_like_scripted/infer_call.h"
#include "backends/python_like_scripted/tensor_codec.h"
#include "nereid/infer_request.h"

namespace nereid::python {

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

InferCalls::InferCalls(Server server, OpenRequests& open, std::shared_ptr<Worker> worker)
    : server_(std::move(server)), open_(open), worker_(std::move(worker)) {}

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

std::shared_ptr<InferCall> InferCalls::Find(int64_t number) const {
  std::lock_guard lock(table_->mutex);
  const auto it = table_->calls.find(number);
  return it == table_->calls.end() ? nullptr : it->second;
}

std::vector<std::shared_ptr<InferCall>> InferCalls::All() const {
  std::vector<std::shared_ptr<InferCall>> calls;
  std::lock_guard lock(table_->mutex);
  for (const auto& [number, call] : table_->calls) calls.push_back(call);
  return calls;
}

void InferCalls::Cancel(int64_t number) {
  if (const auto call = Find(number); call != nullptr) call->Cancel();
}

void InferCalls::CancelAll() {
  for (const auto& call : All()) call->Cancel();
}

void InferCalls::OnConsumed(int64_t number, int64_t count) {
  if (const auto call = Find(number); call != nullptr) call->OnConsumed(count);
}

bool InferCalls::ReleaseStalled() {
  if (table_->num_full.load() == 0) return false;
  for (const auto& call : All()) call->ReleaseIfStalled(InferCall::Clock::now());
  return table_->num_full.load() != 0;
}

}  // namespace nereid::python
