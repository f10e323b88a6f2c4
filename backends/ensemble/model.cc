#include "backends/ensemble/model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "backends/ensemble/capi_client_request.h"
#include "backends/ensemble/request_runner.h"
#include "backends/ensemble/step_buffer.h"
#include "backends/ensemble/validate.h"
#include "nereid/handles.h"

namespace nereid::ensemble {
namespace {

// Maximum number of cached plans. For further subsets of outputs, each request creates its plan
// anew.
constexpr size_t kMaxCachedPlans = 64;

Result<std::string> ConfigOf(TRITONBACKEND_Model* model) {
  TRITONSERVER_Message* handle = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelConfig(model, /*config_version=*/1, &handle)));
  const Message message(handle);
  NEREID_ASSIGN_OR_RETURN(const std::string_view json, message.Json());
  return std::string(json);
}

Result<ModelSpec> SpecOf(const Server& server, const StepConfig& step) {
  Result<Message> message = server.ModelConfig(step.target.c_str(), step.model_version);
  if (!message.ok()) {
    const std::string missing =
        step.model_version < 0
            ? "which has no loaded version"
            : StrCat("whose required version ", step.model_version, " is not loaded");
    return NotFoundError(missing, ": ", message.status().message());
  }
  NEREID_ASSIGN_OR_RETURN(const std::string_view json, message->Json());
  return ParseModelSpec(json);
}

Status Check(const EnsembleConfig& config, std::span<const Result<ModelSpec>> models) {
  const std::vector<ValidationIssue> issues = Validate(config, models);
  for (const ValidationIssue& issue : issues) {
    if (!issue.is_warning) continue;
    (void)ToStatus(
        TRITONSERVER_LogMessage(TRITONSERVER_LOG_WARN, __FILE__, __LINE__, issue.message.c_str()));
  }
  return StatusOf(issues);
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

std::shared_ptr<const Plan> MakeSharedPlan(const std::shared_ptr<const Graph>& graph,
                                           std::span<const int> outputs) {
  return std::make_shared<const Plan>(MakePlan(graph, outputs));
}

}  // namespace

Result<std::unique_ptr<EnsembleModel>> EnsembleModel::Load(TRITONBACKEND_Model* model,
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
  return std::unique_ptr<EnsembleModel>(
      new EnsembleModel(std::move(graph), std::move(context), monitor));
}

EnsembleModel::EnsembleModel(std::shared_ptr<const Graph> graph,
                             std::shared_ptr<const CallContext> context,
                             CancellationMonitor& monitor)
    : graph_(std::move(graph)), context_(std::move(context)), monitor_(monitor) {
  std::vector<int> all(graph_->outputs.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  full_plan_ = MakeSharedPlan(graph_, all);
}

Status EnsembleModel::Execute(TRITONBACKEND_ModelInstance* instance,
                              TRITONBACKEND_Request* request) {
  NEREID_ASSIGN_OR_RETURN(std::shared_ptr<const Plan> plan, PlanFor(request));
  const auto run =
      std::make_shared<EnsembleRun>(context_, instance, request, std::move(plan), monitor_);
  NEREID_RETURN_IF_ERROR(run->client.Open());
  NEREID_ASSIGN_OR_RETURN(const TensorRefs inputs, run->client.ReadInputs());
  run->client.MonitorCancellation(run);
  run->Begin(inputs);
  return {};
}

Result<std::shared_ptr<const Plan>> EnsembleModel::PlanFor(TRITONBACKEND_Request* request) {
  uint32_t count = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestOutputCount(request, &count)));
  InlineVector<int, 8> outputs;
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestOutputName(request, i, &name)));
    const int output = graph_->FindOutput(name);
    if (output < 0) {
      return InvalidArgError("ensemble '", graph_->name, "' has no output '", name, "'");
    }
    outputs.push_back(output);
  }
  std::sort(outputs.begin(), outputs.end());
  const auto* const end = std::unique(outputs.begin(), outputs.end());
  const auto num_outputs = static_cast<size_t>(end - outputs.begin());
  if (num_outputs == 0 || num_outputs == graph_->outputs.size()) return full_plan_;

  const std::vector<int> subset(outputs.data(), outputs.data() + num_outputs);
  std::lock_guard lock(mutex_);
  const auto known = plans_.find(subset);
  if (known != plans_.end()) return known->second;
  std::shared_ptr<const Plan> plan = MakeSharedPlan(graph_, subset);
  if (plans_.size() < kMaxCachedPlans) plans_.emplace(subset, plan);
  return plan;
}

}  // namespace nereid::ensemble
