#include "backends/bls/model.h"

#include <optional>
#include <utility>

#include "backends/bls/single_response_client.h"
#include "backends/bls/token_accumulator.h"
#include "backends/ensemble/capi_client_request.h"
#include "backends/ensemble/request_runner.h"
#include "backends/ensemble/step_buffer.h"
#include "backends/ensemble/validate.h"
#include "nereid/json.h"
#include "nereid/model_config.h"

namespace nereid::ensemble {

Result<std::unique_ptr<ComposedModel>> LoadComposedModel(TRITONBACKEND_Model* model,
                                                         CancellationMonitor& monitor) {
  return bls::BlsModel::Load(model, monitor);
}

}  // namespace nereid::ensemble

namespace nereid::bls {
namespace {

using ensemble::CallContext;
using ensemble::Plan;
using ensemble::PlanCache;
using ensemble::StepConfig;

constexpr auto kLookInterval = std::chrono::seconds(1);

// The objects that a runner uses; constructed before it and destroyed after it.
struct RunEndpoints {
  RunEndpoints(const std::shared_ptr<const CallContext>& context,
               TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request,
               const std::shared_ptr<const Plan>& plan, ensemble::CancellationMonitor& monitor)
      : client(instance, request, plan, monitor),
        models(context, plan, request),
        single(client, plan->graph->name),
        accumulator(models, *plan, kEngine) {}

  ensemble::CApiClientRequest client;
  ensemble::CApiStepModels models;
  SingleResponseClient single;
  TokenAccumulator accumulator;
};

// The objects of one request in one allocation.
struct BlsRun : RunEndpoints, ensemble::RequestRunner {
  BlsRun(const std::shared_ptr<const CallContext>& context, TRITONBACKEND_ModelInstance* instance,
         TRITONBACKEND_Request* request, const std::shared_ptr<const Plan>& plan,
         ensemble::CancellationMonitor& monitor, bool accumulates_tokens)
      : RunEndpoints(context, instance, request, plan, monitor),
        RequestRunner(
            plan, context->limiter,
            accumulates_tokens ? static_cast<ensemble::StepModels&>(accumulator) : models,
            plan->graph->decoupled ? static_cast<ensemble::ClientRequest&>(client) : single) {}
};

// Whether any byte of the input is not zero. Clients send zeros, false and empty texts as defaults.
Result<bool> HasValue(TRITONBACKEND_Input* input) {
  uint32_t num_buffers = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_InputProperties(input, nullptr, nullptr, nullptr,
                                                                nullptr, nullptr, &num_buffers)));
  for (uint32_t i = 0; i < num_buffers; ++i) {
    const void* base = nullptr;
    uint64_t size = 0;
    TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
    int64_t memory_type_id = 0;
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONBACKEND_InputBuffer(input, i, &base, &size, &memory_type, &memory_type_id)));
    if (memory_type == TRITONSERVER_MEMORY_GPU && size > 0) return true;
    const auto* bytes = static_cast<const char*>(base);
    for (uint64_t at = 0; at < size; ++at) {
      if (bytes[at] != 0) return true;
    }
  }
  return false;
}

Status RefuseUnusedInputs(TRITONBACKEND_Request* request, const std::set<std::string>& unused,
                          const std::string& model_name) {
  uint32_t count = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestInputCount(request, &count)));
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestInputName(request, i, &name)));
    if (unused.count(name) == 0) continue;
    TRITONBACKEND_Input* input = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestInputByIndex(request, i, &input)));
    NEREID_ASSIGN_OR_RETURN(const bool has_value, HasValue(input));
    if (!has_value) continue;
    return UnsupportedError("input '", name, "': no model that '", model_name,
                            "' calls has this feature");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ensemble::ComposedModel>> BlsModel::Load(
    TRITONBACKEND_Model* model, ensemble::CancellationMonitor& monitor) {
  NEREID_ASSIGN_OR_RETURN(const std::string text, ensemble::ConfigOf(model));
  NEREID_ASSIGN_OR_RETURN(ensemble::ModelSpec spec, ensemble::ParseModelSpec(text));
  NEREID_ASSIGN_OR_RETURN(const Json json, Json::Parse(text));
  const ConfigParameters parameters(json["parameters"]);
  TRITONSERVER_Server* server = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelServer(model, &server)));
  std::unique_ptr<BlsModel> loaded(new BlsModel(server, std::move(spec), monitor));
  loaded->called_[kPreprocessing] = parameters.String("preprocessing_model_name", "preprocessing");
  loaded->called_[kEngine] = parameters.String("tensorrt_llm_model_name", "tensorrt_llm");
  loaded->called_[kPostprocessing] =
      parameters.String("postprocessing_model_name", "postprocessing");
  NEREID_ASSIGN_OR_RETURN(loaded->accumulates_tokens_, parameters.Bool("accumulate_tokens", false));
  return std::unique_ptr<ensemble::ComposedModel>(std::move(loaded));
}

Status BlsModel::Execute(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request) {
  NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<const LoadedChain> chain, CurrentChain());
  NEREID_RETURN_IF_ERROR(RefuseUnusedInputs(request, chain->unused_inputs, spec_.name));
  NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<const Plan> plan, chain->plans->PlanFor(request));
  const auto run = std::make_shared<BlsRun>(chain->context, instance, request, plan, monitor_,
                                            accumulates_tokens_);
  NEREID_RETURN_IF_ERROR(run->client.Open());
  NEREID_ASSIGN_OR_RETURN(const ensemble::TensorRefs inputs, run->client.ReadInputs());
  run->client.MonitorCancellation(run);
  run->Begin(inputs);
  return {};
}

Result<std::shared_ptr<const BlsModel::LoadedChain>> BlsModel::CurrentChain() {
  std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (chain_ != nullptr && now < next_look_) return chain_;
  std::vector<std::string> configs;
  for (const std::string& name : called_) {
    StepConfig step;
    step.model_name = step.target = name;
    Result<std::string> config = ensemble::ConfigOfStep(Server::Borrow(server_), step);
    if (!config.ok()) {
      return UnavailableError("model '", spec_.name, "' calls model '", name, "', ",
                              config.status().message());
    }
    configs.push_back(std::move(config).value());
  }
  if (chain_ == nullptr || chain_->step_configs != configs) {
    NEREID_ASSIGN_OR_RETURN(chain_, MakeLoadedChain(std::move(configs)));
  }
  next_look_ = now + kLookInterval;
  return chain_;
}

Result<std::shared_ptr<const BlsModel::LoadedChain>> BlsModel::MakeLoadedChain(
    std::vector<std::string> step_configs) const {
  std::vector<ensemble::ModelSpec> called;
  for (const std::string& config : step_configs) {
    NEREID_ASSIGN_OR_RETURN(ensemble::ModelSpec spec, ensemble::ParseModelSpec(config));
    called.push_back(std::move(spec));
  }
  Chain chain = MakeChain(spec_, called_, called);
  const std::vector<Result<ensemble::ModelSpec>> checked(called.begin(), called.end());
  NEREID_RETURN_IF_ERROR(ensemble::StatusOf(ensemble::Validate(chain.config, checked)));
  auto graph = std::make_shared<ensemble::Graph>(ensemble::BuildGraph(chain.config, called));
  graph->decoupled = spec_.decoupled;

  NEREID_ASSIGN_OR_RETURN(ResponseAllocator allocator,
                          ResponseAllocator::Create<ensemble::StepBufferPolicy>());
  auto limiter = std::make_shared<ensemble::InflightLimiter>(chain.config.steps.size(),
                                                             ensemble::InflightLimits{});
  auto loaded = std::make_shared<LoadedChain>();
  loaded->step_configs = std::move(step_configs);
  loaded->unused_inputs = std::move(chain.unused_inputs);
  loaded->plans = std::make_shared<PlanCache>(std::move(graph), std::move(chain.absent_outputs));
  loaded->context = std::make_shared<const CallContext>(
      CallContext{server_, std::move(limiter), std::move(allocator)});
  return std::shared_ptr<const LoadedChain>(std::move(loaded));
}

}  // namespace nereid::bls
