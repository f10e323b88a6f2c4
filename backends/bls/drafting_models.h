// The two models of requests with `num_draft_tokens`: the engine, which verifies drafts, and the
// model that drafts. [any thread]
#pragma once

#include <memory>

#include "backends/ensemble/plan.h"
#include "nereid/status.h"

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

}  // namespace nereid::bls
