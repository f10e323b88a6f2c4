#include "backends/ensemble/capi_step_models.h"

#include <atomic>
#include <optional>
#include <utility>

#include "backends/ensemble/step_buffer.h"
#include "nereid/error.h"

namespace nereid::ensemble {
namespace {

// A correlation id is a number or a string. Reading it as a number fails if it is a string.
Status ForwardCorrelationId(TRITONBACKEND_Request* client, InferRequest& target) {
  uint64_t number = 0;
  if (ToStatus(TRITONBACKEND_RequestCorrelationId(client, &number)).ok()) {
    return number == 0 ? Status() : target.SetCorrelationId(number);
  }
  const char* text = "";
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestCorrelationIdString(client, &text)));
  return target.SetCorrelationId(text);
}

// The backend API has no function for the priority. In this host as in Triton, both handle types
// refer to the same object, so the function of the server API works.
TRITONSERVER_Error* PriorityOf(TRITONBACKEND_Request* client, uint64_t* priority) {
  return TRITONSERVER_InferenceRequestPriorityUInt64(
      reinterpret_cast<TRITONSERVER_InferenceRequest*>(client), priority);
}

Status ForwardPriority(TRITONBACKEND_Request* client, InferRequest& target) {
  uint64_t priority = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(PriorityOf(client, &priority)));
  return priority == 0 ? Status() : target.SetPriority(priority);
}

Status ForwardParameter(TRITONBACKEND_Request* client, uint32_t index, InferRequest& target) {
  const char* key = nullptr;
  TRITONSERVER_ParameterType type;
  const void* value = nullptr;
  NEREID_RETURN_IF_ERROR(
      ToStatus(TRITONBACKEND_RequestParameter(client, index, &key, &type, &value)));
  switch (type) {
    case TRITONSERVER_PARAMETER_STRING:
      return target.SetParameter(key, static_cast<const char*>(value));
    case TRITONSERVER_PARAMETER_INT:
      return target.SetParameter(key, *static_cast<const int64_t*>(value));
    case TRITONSERVER_PARAMETER_BOOL:
      return target.SetParameter(key, *static_cast<const bool*>(value));
    case TRITONSERVER_PARAMETER_DOUBLE:
      return target.SetParameter(key, *static_cast<const double*>(value));
    default:
      return UnsupportedError("parameter '", key, "': type ", static_cast<int>(type),
                              " cannot be passed on to a step");
  }
}

// Whether the client's request has any attribute to forward: anything but its tensors.
bool HasAttributes(TRITONBACKEND_Request* client) {
  const char* id = "";
  uint32_t flags = 0, num_parameters = 0;
  uint64_t correlation_id = 0, priority = 0, timeout_us = 0;
  const bool is_readable =
      ToStatus(TRITONBACKEND_RequestId(client, &id)).ok() &&
      ToStatus(TRITONBACKEND_RequestFlags(client, &flags)).ok() &&
      ToStatus(TRITONBACKEND_RequestCorrelationId(client, &correlation_id)).ok() &&
      ToStatus(PriorityOf(client, &priority)).ok() &&
      ToStatus(TRITONBACKEND_InferenceRequestTimeoutMicroseconds(client, &timeout_us)).ok() &&
      ToStatus(TRITONBACKEND_RequestParameterCount(client, &num_parameters)).ok();
  return !is_readable || id[0] != '\0' || flags != 0 || correlation_id != 0 || priority != 0 ||
         timeout_us != 0 || num_parameters != 0;
}

// Copies id, correlation id, sequence flags, priority, timeout and parameters to a step's request.
Status ForwardAttributes(TRITONBACKEND_Request* client, InferRequest& target) {
  const char* id = "";
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestId(client, &id)));
  if (id[0] != '\0') NEREID_RETURN_IF_ERROR(target.SetId(id));
  uint32_t flags = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestFlags(client, &flags)));
  if (flags != 0) NEREID_RETURN_IF_ERROR(target.SetFlags(flags));
  NEREID_RETURN_IF_ERROR(ForwardCorrelationId(client, target));
  NEREID_RETURN_IF_ERROR(ForwardPriority(client, target));
  uint64_t timeout_us = 0;
  NEREID_RETURN_IF_ERROR(
      ToStatus(TRITONBACKEND_InferenceRequestTimeoutMicroseconds(client, &timeout_us)));
  if (timeout_us != 0) NEREID_RETURN_IF_ERROR(target.SetTimeoutUs(timeout_us));
  uint32_t num_parameters = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestParameterCount(client, &num_parameters)));
  for (uint32_t i = 0; i < num_parameters; ++i) {
    NEREID_RETURN_IF_ERROR(ForwardParameter(client, i, target));
  }
  return {};
}

TensorRef MakeTensor(const OutputView& output) {
  const auto tensor =
      output.userp == nullptr ? std::make_shared<Tensor>() : TensorOfStepBuffer(output.userp);
  tensor->data_type = output.datatype;
  tensor->shape.assign(output.shape);
  tensor->segments.clear();
  if (output.size_bytes > 0) {
    tensor->segments.push_back({output.base, output.size_bytes,
                                static_cast<uint32_t>(output.memory_type), output.memory_type_id});
  }
  return tensor;
}

// One request to a step's model. The object owns a reference to itself from InferAsync until both
// the final response and the release have arrived.
class CApiStepCall : public StepCall,
                     public InferObserver,
                     public std::enable_shared_from_this<CApiStepCall> {
 public:
  CApiStepCall(std::shared_ptr<const CallContext> context, std::shared_ptr<const Plan> plan,
               const StepRequest& request, std::shared_ptr<StepEvents> events)
      : context_(std::move(context)),
        plan_(std::move(plan)),
        step_(plan_->graph->steps[request.step]),
        inputs_(request.inputs),
        events_(std::move(events)) {}

  Status Send(InferRequest request, TRITONSERVER_InferenceTrace* trace) {
    void* userp = const_cast<std::shared_ptr<InflightLimiter>*>(&context_->limiter);
    NEREID_RETURN_IF_ERROR(request.SetCallbacks(this, context_->allocator, userp));
    handle_ = request.get();
    self_ = shared_from_this();
    const Server server = Server::Borrow(context_->server);
    Status status = server.InferAsync(std::move(request), trace);
    if (status.ok()) return status;
    self_.reset();
    return status;
  }

  void Cancel() override { (void)InferRequest::Cancel(handle_); }

  void OnResponse(InferResponse response, bool is_final) noexcept override {
    if (response.empty()) {
      if (is_final) events_->OnFinal();
    } else if (Status error = response.Error(); !error.ok()) {
      events_->OnError(std::move(error), is_final);
    } else {
      Pass(std::move(response), is_final);
    }
    if (is_final) DropEnd();
  }

  void OnRelease(InferRequest request) noexcept override {
    released_.emplace(std::move(request));
    inputs_.clear();
    events_->OnReleased();
    DropEnd();
  }

 private:
  void Pass(InferResponse response, bool is_final) {
    TensorRefs outputs;
    outputs.resize(step_.outputs.size());
    Status status = ReadOutputs(response, outputs);
    response = InferResponse();  // freed before the next steps run, so that only the tensors keep
                                 // its buffers
    if (status.ok()) {
      events_->OnResponse(outputs, is_final);
    } else {
      events_->OnError(std::move(status), is_final);
    }
  }

  Status ReadOutputs(const InferResponse& response, TensorRefs& outputs) const {
    NEREID_ASSIGN_OR_RETURN(const uint32_t count, response.OutputCount());
    for (uint32_t i = 0; i < count; ++i) {
      NEREID_ASSIGN_OR_RETURN(const OutputView output, response.Output(i));
      for (size_t k = 0; k < step_.outputs.size(); ++k) {
        if (step_.outputs[k].name == output.name) outputs[k] = MakeTensor(output);
      }
    }
    return {};
  }

  // Called for the final response and for the release; after the second call no event follows.
  void DropEnd() {
    if (num_pending_ends_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    const std::shared_ptr<CApiStepCall> keep = std::move(self_);
    events_.reset();
  }

  const std::shared_ptr<const CallContext> context_;
  const std::shared_ptr<const Plan> plan_;
  const Step& step_;
  TensorRefs inputs_;  // until the release
  std::shared_ptr<StepEvents> events_;
  TRITONSERVER_InferenceRequest* handle_ = nullptr;  // valid as long as this object
  std::optional<InferRequest> released_;             // owner of handle_ after the release
  std::shared_ptr<CApiStepCall> self_;
  std::atomic<int> num_pending_ends_{2};
};

}  // namespace

CApiStepModels::CApiStepModels(std::shared_ptr<const CallContext> context,
                               std::shared_ptr<const Plan> plan, TRITONBACKEND_Request* client)
    : context_(std::move(context)),
      plan_(std::move(plan)),
      client_(client),
      has_attributes_(HasAttributes(client)) {
  if (!ToStatus(TRITONBACKEND_RequestTrace(client_, &trace_)).ok()) trace_ = nullptr;
}

Result<std::shared_ptr<StepCall>> CApiStepModels::Start(const StepRequest& request,
                                                        std::shared_ptr<StepEvents> events) {
  const Step& step = plan_->graph->steps[request.step];
  const Server server = Server::Borrow(context_->server);
  NEREID_ASSIGN_OR_RETURN(InferRequest target,
                          server.NewRequest(step.target.c_str(), step.model_version));
  if (has_attributes_) NEREID_RETURN_IF_ERROR(ForwardAttributes(client_, target));
  NEREID_RETURN_IF_ERROR(FillInputs(request, target));
  NEREID_RETURN_IF_ERROR(RequestOutputs(step, target));
  if (step.decoupled) target.SetRoomSource(client_);
  auto call = std::make_shared<CApiStepCall>(context_, plan_, request, std::move(events));
  NEREID_RETURN_IF_ERROR(call->Send(std::move(target), ChildTrace()));
  return std::shared_ptr<StepCall>(std::move(call));
}

Status CApiStepModels::FillInputs(const StepRequest& request, InferRequest& target) const {
  const Step& step = plan_->graph->steps[request.step];
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const TensorRef& tensor = request.inputs[i];
    if (tensor == nullptr) continue;
    const Binding& input = step.inputs[i];
    const char* name = input.name.c_str();
    const Shape shape = ShapeFor(input, tensor->shape);
    NEREID_RETURN_IF_ERROR(
        target.AddInput(name, static_cast<TRITONSERVER_DataType>(tensor->data_type), shape.span()));
    for (const Segment& segment : tensor->segments) {
      NEREID_RETURN_IF_ERROR(target.AppendInputData(
          name, segment.base, segment.byte_size,
          static_cast<TRITONSERVER_MemoryType>(segment.memory_type), segment.memory_type_id));
    }
  }
  return {};
}

Status CApiStepModels::RequestOutputs(const Step& step, InferRequest& target) const {
  for (const Binding& output : step.outputs) {
    if (!plan_->needs_tensor(output.tensor)) continue;
    NEREID_RETURN_IF_ERROR(target.AddRequestedOutput(output.name.c_str()));
  }
  return {};
}

TRITONSERVER_InferenceTrace* CApiStepModels::ChildTrace() const {
  if (trace_ == nullptr) return nullptr;
  TRITONSERVER_InferenceTrace* child = nullptr;
  if (!ToStatus(TRITONSERVER_InferenceTraceSpawnChildTrace(trace_, &child)).ok()) return nullptr;
  return child;
}

}  // namespace nereid::ensemble
