#include "backends/bls/model.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
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
constexpr std::string_view kNumDraftTokens = "num_draft_tokens";
// Changes nothing: the engine accepts the draft tokens that it would have sampled itself.
constexpr std::string_view kUseDraftLogits = "use_draft_logits";
constexpr size_t kDraftModel = kNumChainSteps;  // position among the called models

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

// The number in an input of one element; 0 if the request does not have the input.
Result<int32_t> NumberIn(TRITONBACKEND_Request* request, const char* name) {
  TRITONBACKEND_Input* input = nullptr;
  if (!ToStatus(TRITONBACKEND_RequestInput(request, name, &input)).ok()) return 0;
  const void* base = nullptr;
  uint64_t size = 0;
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  NEREID_RETURN_IF_ERROR(
      ToStatus(TRITONBACKEND_InputBuffer(input, 0, &base, &size, &memory_type, &memory_type_id)));
  int32_t number = 0;
  if (size != sizeof(number) || memory_type == TRITONSERVER_MEMORY_GPU) {
    return InvalidArgError("input '", name, "': expected 1 element, got ", size / sizeof(number));
  }
  std::memcpy(&number, base, sizeof(number));
  return number;
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
    const bool is_draft = std::string_view(name) == kNumDraftTokens || name == kUseDraftLogits;
    return UnsupportedError(
        "input '", name, "': no model that '", model_name, "' calls has this feature",
        is_draft ? "; the parameter 'tensorrt_llm_draft_model_name' names a draft model" : "");
  }
  return {};
}

// Gives the inputs the shapes that the client sent.
void UndoReshape(const ensemble::Graph& graph, const ensemble::ModelSpec& spec,
                 ensemble::TensorRefs& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ensemble::TensorSpec* input = spec.FindInput(graph.inputs[i].name);
    if (inputs[i] == nullptr || input == nullptr) continue;
    const ensemble::Shape shape = ShapeOfClient(*input, spec.max_batch_size > 0, inputs[i]->shape);
    if (shape == inputs[i]->shape) continue;
    auto changed = std::make_shared<ensemble::Tensor>(*inputs[i]);
    changed->shape = shape;
    inputs[i] = std::move(changed);
  }
}

// Whether the model's output has no prompt before it.
Result<bool> ExcludesPrompt(const std::string& config) {
  NEREID_ASSIGN_OR_RETURN(const Json json, Json::Parse(config));
  return ConfigParameters(json["parameters"]).Bool("exclude_input_in_output", false);
}

Result<std::shared_ptr<ensemble::Graph>> MakeGraph(const ensemble::ModelSpec& spec,
                                                   const Chain& chain,
                                                   const std::vector<ensemble::ModelSpec>& called) {
  const std::vector<Result<ensemble::ModelSpec>> checked(called.begin(), called.end());
  NEREID_RETURN_IF_ERROR(ensemble::StatusOf(ensemble::Validate(chain.config, checked)));
  auto graph = std::make_shared<ensemble::Graph>(ensemble::BuildGraph(chain.config, called));
  graph->decoupled = spec.decoupled;
  return graph;
}

// Calls the models while the engine's step drafts.
struct Drafting {
  Drafting(const std::shared_ptr<const CallContext>& context,
           std::shared_ptr<const DraftingModels> shared, const Plan& plan,
           TRITONBACKEND_Request* request, int32_t num_tokens, ensemble::StepModels& others)
      : models(std::move(shared)),
        target(context, TargetPlan(*models, plan), request),
        draft(context, DraftPlan(*models), request),
        engine(*models, num_tokens, others, target, draft) {}

  const std::shared_ptr<const DraftingModels> models;
  ensemble::CApiStepModels target, draft;
  DraftedEngine engine;
};

// What one request asks of the chain.
struct RunOptions {
  bool accumulates_tokens = false;
  int32_t num_draft_tokens = 0;
  std::shared_ptr<const DraftingModels> drafting;  // set with num_draft_tokens
};

// The objects that a runner uses; constructed before it and destroyed after it.
struct RunEndpoints {
  RunEndpoints(const std::shared_ptr<const CallContext>& context,
               TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request,
               const std::shared_ptr<const Plan>& plan, ensemble::CancellationMonitor& monitor,
               const RunOptions& options)
      : client(instance, request, plan, monitor),
        models(context, plan, request),
        single(client, plan->graph->name),
        accumulator(models, *plan, kEngine) {
    if (options.num_draft_tokens > 0) {
      drafting.emplace(context, options.drafting, *plan, request, options.num_draft_tokens, models);
      step_models = &drafting->engine;
    } else if (options.accumulates_tokens) {
      step_models = &accumulator;
    }
  }

  ensemble::CApiClientRequest client;
  ensemble::CApiStepModels models;
  SingleResponseClient single;
  TokenAccumulator accumulator;
  std::optional<Drafting> drafting;
  ensemble::StepModels* step_models = &models;  // the one that the runner calls
};

// The objects of one request in one allocation.
struct BlsRun : RunEndpoints, ensemble::RequestRunner {
  BlsRun(const std::shared_ptr<const CallContext>& context, TRITONBACKEND_ModelInstance* instance,
         TRITONBACKEND_Request* request, const std::shared_ptr<const Plan>& plan,
         ensemble::CancellationMonitor& monitor, const RunOptions& options)
      : RunEndpoints(context, instance, request, plan, monitor, options),
        RequestRunner(
            plan, context->limiter, *step_models,
            plan->graph->decoupled ? static_cast<ensemble::ClientRequest&>(client) : single) {}
};

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
  loaded->draft_model_ = parameters.String("tensorrt_llm_draft_model_name");
  NEREID_ASSIGN_OR_RETURN(loaded->accumulates_tokens_, parameters.Bool("accumulate_tokens", false));
  return std::unique_ptr<ensemble::ComposedModel>(std::move(loaded));
}

Status BlsModel::Execute(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request) {
  NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<const LoadedChain> chain, CurrentChain());
  NEREID_RETURN_IF_ERROR(RefuseUnusedInputs(request, chain->unused_inputs, spec_.name));
  NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<const Plan> plan, chain->plans->PlanFor(request));
  RunOptions options{accumulates_tokens_, 0, chain->drafting};
  if (options.drafting != nullptr && spec_.FindInput(kNumDraftTokens) != nullptr) {
    NEREID_ASSIGN_OR_RETURN(options.num_draft_tokens, NumberIn(request, kNumDraftTokens.data()));
    if (options.num_draft_tokens < 0) {
      return InvalidArgError("input 'num_draft_tokens': expected 0 or more, got ",
                             options.num_draft_tokens);
    }
  }
  const auto run =
      std::make_shared<BlsRun>(chain->context, instance, request, plan, monitor_, options);
  NEREID_RETURN_IF_ERROR(run->client.Open());
  NEREID_ASSIGN_OR_RETURN(ensemble::TensorRefs inputs, run->client.ReadInputs());
  UndoReshape(*plan->graph, spec_, inputs);
  run->client.MonitorCancellation(run);
  run->Begin(inputs);
  return {};
}

Result<std::shared_ptr<const BlsModel::LoadedChain>> BlsModel::CurrentChain() {
  std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (chain_ != nullptr && now < next_look_) return chain_;
  std::vector<std::string> configs, names(std::begin(called_), std::end(called_));
  if (!draft_model_.empty()) names.push_back(draft_model_);
  for (const std::string& name : names) {
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
  auto loaded = std::make_shared<LoadedChain>();
  const std::vector<ensemble::ModelSpec> chained(called.begin(), called.begin() + kNumChainSteps);
  Chain chain = MakeChain(spec_, called_, chained);
  NEREID_ASSIGN_OR_RETURN(auto graph, MakeGraph(spec_, chain, chained));
  if (!draft_model_.empty()) {
    NEREID_ASSIGN_OR_RETURN(loaded->drafting,
                            MakeDrafting(*graph, step_configs, std::move(called)));
    chain.unused_inputs.erase(std::string(kNumDraftTokens));
    chain.unused_inputs.erase(std::string(kUseDraftLogits));
  }

  NEREID_ASSIGN_OR_RETURN(ResponseAllocator allocator,
                          ResponseAllocator::Create<ensemble::StepBufferPolicy>());
  auto limiter = std::make_shared<ensemble::InflightLimiter>(chain.config.steps.size(),
                                                             ensemble::InflightLimits{});
  loaded->step_configs = std::move(step_configs);
  loaded->unused_inputs = std::move(chain.unused_inputs);
  loaded->plans = std::make_shared<PlanCache>(std::move(graph), std::move(chain.absent_outputs));
  loaded->context = std::make_shared<const CallContext>(
      CallContext{server_, std::move(limiter), std::move(allocator)});
  return std::shared_ptr<const LoadedChain>(std::move(loaded));
}

Result<std::shared_ptr<const DraftingModels>> BlsModel::MakeDrafting(
    const ensemble::Graph& target, const std::vector<std::string>& step_configs,
    std::vector<ensemble::ModelSpec> called) const {
  if (called[kEngine].FindInput("draft_input_ids") == nullptr) {
    return InvalidArgError("model '", called_[kEngine],
                           "' has no input 'draft_input_ids', which drafting needs");
  }
  ChainModels names;
  std::copy(std::begin(called_), std::end(called_), names);
  names[kEngine] = draft_model_;
  called[kEngine] = std::move(called[kDraftModel]);
  called.pop_back();
  const Chain chain = MakeChain(spec_, names, called);
  NEREID_ASSIGN_OR_RETURN(const auto draft, MakeGraph(spec_, chain, called));
  NEREID_ASSIGN_OR_RETURN(const bool target_excludes, ExcludesPrompt(step_configs[kEngine]));
  NEREID_ASSIGN_OR_RETURN(const bool draft_excludes, ExcludesPrompt(step_configs[kDraftModel]));
  return MakeDraftingModels(target, target_excludes, *draft, draft_excludes);
}

}  // namespace nereid::bls
