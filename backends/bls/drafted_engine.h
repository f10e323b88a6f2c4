// For `num_draft_tokens`: answers the engine's step by calls of a draft model and of the engine in
// turn, with one response, whose text is that of the engine alone. The other steps pass through.
// [any thread]
#pragma once

#include <memory>

#include "backends/ensemble/plan.h"
#include "backends/ensemble/step_models.h"

namespace nereid::bls {

// The step of a model that can draft or verify.
struct DraftingModel {
  const ensemble::Step* step = nullptr;
  // Whether the output has no prompt before it, by the model's configuration.
  bool excludes_prompt = false;
};

// What all requests with draft tokens share. Immutable.
struct DraftingModels {
  std::shared_ptr<const ensemble::Graph> target_graph, draft_graph;
  DraftingModel target, draft;  // steps of these graphs
};

// Returns the engine's graph with the input draft_input_ids added to the engine's step. INVALID_ARG
// if one of the models lacks a tensor that drafting needs.
Result<std::shared_ptr<const DraftingModels>> MakeDraftingModels(const ensemble::Graph& target,
                                                                 bool target_excludes_prompt,
                                                                 const ensemble::Graph& draft,
                                                                 bool draft_excludes_prompt);

// The plan for calls of the engine's step while drafting: with the outputs that `plan` needs and
// those that tell the tokens.
std::shared_ptr<const ensemble::Plan> TargetPlan(const DraftingModels& models,
                                                 const ensemble::Plan& plan);
std::shared_ptr<const ensemble::Plan> DraftPlan(const DraftingModels& models);

// Stands between a request's runner and the models that it calls. One object for each request.
class DraftedEngine : public ensemble::StepModels {
 public:
  // All outlive this object and its calls. `others` calls the steps of the request's plan, `target`
  // those of TargetPlan, `draft` those of DraftPlan.
  DraftedEngine(const DraftingModels& models, int32_t num_draft_tokens,
                ensemble::StepModels& others, ensemble::StepModels& target,
                ensemble::StepModels& draft)
      : models_(models),
        num_draft_tokens_(num_draft_tokens),
        others_(others),
        target_(target),
        draft_(draft) {}

  Result<std::shared_ptr<ensemble::StepCall>> Start(
      const ensemble::StepRequest& request, std::shared_ptr<ensemble::StepEvents> events) override;

 private:
  const DraftingModels& models_;
  const int32_t num_draft_tokens_;
  ensemble::StepModels& others_;
  ensemble::StepModels& target_;
  ensemble::StepModels& draft_;
};

}  // namespace nereid::bls
