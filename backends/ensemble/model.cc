#include "backends/ensemble/model.h"

#include <string>
#include <utility>

#include "backends/ensemble/capi_client_request.h"
#include "backends/ensemble/request_runner.h"
#include "backends/ensemble/step_buffer.h"
#include "backends/ensemble/validate.h"
#include "nereid/handles.h"

namespace nereid::ensemble {
namespace {

Status Check(const EnsembleConfig& config, std::span<const Result<ModelSpec>> models) {
  const std::vector<ValidationIssue> issues = Validate(config, models);
  for (const ValidationIssue& issue : issues) {
    if (!issue.is_warning) continue;
    (void)ToStatus(
        TRITONSERVER_LogMessage(TRITONSERVER_LOG_WARN, __FILE__, __LINE__, issue.message.c_str()));
  }
  return StatusOf(issues);
}

Result<ModelSpec> SpecOf(const Server& server, const StepConfig& step) {
  NEREID_ASSIGN_OR_RETURN(const std::string json, ConfigOfStep(server, step));
  return ParseModelSpec(json);
}

Status SetDecoupled(TRITONBACKEND_Model* model, const std::string& config, bool decoupled) {
  NEREID_ASSIGN_OR_RETURN(const std::string changed, WithDecoupled(config, decoupled));
  TRITONSERVER_Message* handle = nullptr;
  NEREID_RETURN_IF_ERROR(
      ToStatus(TRITONSERVER_MessageNewFromSerializedJson(&handle, changed.data(), changed.size())));
  const Message message(handle);
  return ToStatus(TRITONBACKEND_ModelSetConfig(model, /*config_version=*/1, message.get()));
}

// The objects that a runner uses; constructed before it and destroyed after it.
struct RunEndpoints {
  CApiClientRequest client;
  CApiStepModels models;
};

// The objects of one request in one allocation.
struct EnsembleRun : RunEndpoints, RequestRunner {
  EnsembleRun(const std::shared_ptr<const CallContext>& context,
              TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request,
              std::shared_ptr<const Plan> plan, CancellationMonitor& monitor)
      : RunEndpoints{{instance, request, plan, monitor}, {context, plan, request}},
        RequestRunner(std::move(plan), context->limiter, RunEndpoints::models,
                      RunEndpoints::client) {}
};

}  // namespace

Result<std::unique_ptr<ComposedModel>> LoadComposedModel(TRITONBACKEND_Model* model,
                                                         CancellationMonitor& monitor) {
  return EnsembleModel::Load(model, monitor);
}

Result<std::unique_ptr<ComposedModel>> EnsembleModel::Load(TRITONBACKEND_Model* model,
                                                           CancellationMonitor& monitor) {
  NEREID_ASSIGN_OR_RETURN(const std::string json, ConfigOf(model));
  NEREID_ASSIGN_OR_RETURN(const EnsembleConfig config, ParseEnsembleConfig(json));
  TRITONSERVER_Server* handle = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelServer(model, &handle)));
  const Server server = Server::Borrow(handle);
  std::vector<Result<ModelSpec>> found;
  for (const StepConfig& step : config.steps) found.push_back(SpecOf(server, step));
  NEREID_RETURN_IF_ERROR(Check(config, found));

  std::vector<ModelSpec> specs;
  for (Result<ModelSpec>& spec : found) specs.push_back(std::move(spec).value());
  auto graph = std::make_shared<Graph>(BuildGraph(config, specs));
  // The steps decide whether the ensemble is decoupled, whatever its configuration says.
  if (graph->decoupled != config.model.decoupled) {
    NEREID_RETURN_IF_ERROR(SetDecoupled(model, json, graph->decoupled));
  }

  InflightLimits limits;
  limits.max_requests_per_step = config.max_inflight_requests;
  NEREID_ASSIGN_OR_RETURN(ResponseAllocator allocator,
                          ResponseAllocator::Create<StepBufferPolicy>());
  auto limiter = std::make_shared<InflightLimiter>(config.steps.size(), limits);
  auto context = std::make_shared<const CallContext>(
      CallContext{handle, std::move(limiter), std::move(allocator)});
  return std::unique_ptr<ComposedModel>(
      new EnsembleModel(std::move(graph), std::move(context), monitor));
}

EnsembleModel::EnsembleModel(std::shared_ptr<const Graph> graph,
                             std::shared_ptr<const CallContext> context,
                             CancellationMonitor& monitor)
    : plans_(std::move(graph)), context_(std::move(context)), monitor_(monitor) {}

Status EnsembleModel::Execute(TRITONBACKEND_ModelInstance* instance,
                              TRITONBACKEND_Request* request) {
  NEREID_ASSIGN_OR_RETURN(std::shared_ptr<const Plan> plan, plans_.PlanFor(request));
  const auto run =
      std::make_shared<EnsembleRun>(context_, instance, request, std::move(plan), monitor_);
  NEREID_RETURN_IF_ERROR(run->client.Open());
  NEREID_ASSIGN_OR_RETURN(const TensorRefs inputs, run->client.ReadInputs());
  run->client.MonitorCancellation(run);
  run->Begin(inputs);
  return {};
}

}  // namespace nereid::ensemble
