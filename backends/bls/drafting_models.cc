// Adds the tensors that drafting needs to the graphs and plans of both models.
#include "backends/bls/drafting_models.h"

#include <initializer_list>
#include <utility>
#include <vector>

#include "backends/bls/chain.h"
#include "backends/bls/named_inputs.h"

namespace nereid::bls {
namespace {

using ensemble::Binding;
using ensemble::Graph;
using ensemble::Plan;
using ensemble::Step;

Status CheckTensors(const Step& step) {
  for (const char* name : {"input_ids", "input_lengths", "request_output_len"}) {
    if (Find(step.inputs, name) == nullptr) {
      return InvalidArgError("model '", step.model_name, "' has no input '", name,
                             "', which drafting needs");
    }
  }
  for (const char* name : {"output_ids", "sequence_length"}) {
    if (Find(step.outputs, name) == nullptr) {
      return InvalidArgError("model '", step.model_name, "' has no output '", name,
                             "', which drafting needs");
    }
  }
  return {};
}

std::shared_ptr<Plan> PlanFor(const std::shared_ptr<const Graph>& graph) {
  auto plan = std::make_shared<Plan>();
  plan->graph = graph;
  plan->slot_of_tensor.assign(graph->tensors.size(), -1);
  return plan;
}

// Marks the outputs as needed, so that calls ask for them.
void Need(Plan& plan, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const Binding* output = Find(plan.graph->steps[kEngine].outputs, name);
    if (output != nullptr) plan.slot_of_tensor[output->tensor] = 0;
  }
}

}  // namespace

Result<std::shared_ptr<const DraftingModels>> MakeDraftingModels(const Graph& target,
                                                                 bool target_excludes_prompt,
                                                                 const Graph& draft,
                                                                 bool draft_excludes_prompt) {
  NEREID_RETURN_IF_ERROR(CheckTensors(target.steps[kEngine]));
  NEREID_RETURN_IF_ERROR(CheckTensors(draft.steps[kEngine]));
  auto with_drafts = std::make_shared<Graph>(target);
  std::vector<Binding>& inputs = with_drafts->steps[kEngine].inputs;
  Binding drafts = *Find(inputs, "input_ids");
  drafts.name = "draft_input_ids";
  drafts.optional = true;
  inputs.push_back(std::move(drafts));
  auto models = std::make_shared<DraftingModels>();
  models->target_graph = std::move(with_drafts);
  models->draft_graph = std::make_shared<const Graph>(draft);
  models->target = {&models->target_graph->steps[kEngine], target_excludes_prompt};
  models->draft = {&models->draft_graph->steps[kEngine], draft_excludes_prompt};
  return std::shared_ptr<const DraftingModels>(std::move(models));
}

std::shared_ptr<const Plan> TargetPlan(const DraftingModels& models, const Plan& plan) {
  auto calls = PlanFor(models.target_graph);
  calls->slot_of_tensor = plan.slot_of_tensor;
  Need(*calls, {"output_ids", "sequence_length"});
  const Binding* sum = Find(models.target.step->outputs, "cum_log_probs");
  if (sum != nullptr && calls->needs_tensor(sum->tensor)) Need(*calls, {"output_log_probs"});
  return calls;
}

std::shared_ptr<const Plan> DraftPlan(const DraftingModels& models) {
  auto calls = PlanFor(models.draft_graph);
  Need(*calls, {"output_ids", "sequence_length"});
  return calls;
}

}  // namespace nereid::bls
