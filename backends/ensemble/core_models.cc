#include "backends/ensemble/core_models.h"

#include <atomic>
#include <optional>
#include <utility>

#include "backends/ensemble/forward_request.h"
#include "backends/ensemble/step_buffer.h"

namespace nereid::ensemble {
namespace {

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

// One request to a step's model. The C API holds a reference from InferAsync until both the final
// response and the release have come.
class CoreCall : public StepCall,
                 public InferObserver,
                 public std::enable_shared_from_this<CoreCall> {
 public:
  CoreCall(std::shared_ptr<const CallContext> context, std::shared_ptr<const Plan> plan,
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
    if (is_final) DropOne();
  }

  void OnRelease(InferRequest request) noexcept override {
    released_.emplace(std::move(request));
    inputs_.clear();
    events_->OnReleased();
    DropOne();
  }

 private:
  void Pass(InferResponse response, bool is_final) {
    TensorRefs outputs;
    outputs.resize(step_.outputs.size());
    Status status = ReadOutputs(response, outputs);
    response =
        InferResponse();  // gone before the next steps run: only the tensors keep its buffers
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

  // After the second of final response and release nothing comes any more.
  void DropOne() {
    if (num_halves_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    const std::shared_ptr<CoreCall> keep = std::move(self_);
    events_.reset();
  }

  const std::shared_ptr<const CallContext> context_;
  const std::shared_ptr<const Plan> plan_;
  const Step& step_;
  TensorRefs inputs_;  // until the release
  std::shared_ptr<StepEvents> events_;
  TRITONSERVER_InferenceRequest* handle_ = nullptr;  // valid as long as this object
  std::optional<InferRequest> released_;             // handle_'s owner after the release
  std::shared_ptr<CoreCall> self_;
  std::atomic<int> num_halves_{2};
};

}  // namespace

CoreModels::CoreModels(std::shared_ptr<const CallContext> context, std::shared_ptr<const Plan> plan,
                       TRITONBACKEND_Request* client)
    : context_(std::move(context)),
      plan_(std::move(plan)),
      client_(client),
      has_attributes_(HasAttributes(client)) {
  if (!ToStatus(TRITONBACKEND_RequestTrace(client_, &trace_)).ok()) trace_ = nullptr;
}

Result<std::shared_ptr<StepCall>> CoreModels::Start(const StepRequest& request,
                                                    std::shared_ptr<StepEvents> events) {
  const Step& step = plan_->graph->steps[request.step];
  const Server server = Server::Borrow(context_->server);
  NEREID_ASSIGN_OR_RETURN(InferRequest target,
                          server.NewRequest(step.target.c_str(), step.model_version));
  if (has_attributes_) NEREID_RETURN_IF_ERROR(ForwardAttributes(client_, target));
  NEREID_RETURN_IF_ERROR(FillInputs(request, target));
  NEREID_RETURN_IF_ERROR(RequestOutputs(step, target));
  auto call = std::make_shared<CoreCall>(context_, plan_, request, std::move(events));
  NEREID_RETURN_IF_ERROR(call->Send(std::move(target), ChildTrace()));
  return std::shared_ptr<StepCall>(std::move(call));
}

Status CoreModels::FillInputs(const StepRequest& request, InferRequest& target) const {
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

Status CoreModels::RequestOutputs(const Step& step, InferRequest& target) const {
  for (const Binding& output : step.outputs) {
    if (!plan_->needs_tensor(output.tensor)) continue;
    NEREID_RETURN_IF_ERROR(target.AddRequestedOutput(output.name.c_str()));
  }
  return {};
}

TRITONSERVER_InferenceTrace* CoreModels::ChildTrace() const {
  if (trace_ == nullptr) return nullptr;
  TRITONSERVER_InferenceTrace* child = nullptr;
  if (!ToStatus(TRITONSERVER_InferenceTraceSpawnChildTrace(trace_, &child)).ok()) return nullptr;
  return child;
}

}  // namespace nereid::ensemble
