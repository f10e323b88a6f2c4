#include "backends/ensemble/plan.h"

#include <algorithm>

namespace nereid::ensemble {
namespace {

// Marks the tensors and steps from which the requested outputs are computed, walking upstream.
void MarkNeeded(const Graph& graph, std::vector<int> frontier, std::vector<bool>& tensors,
                std::vector<bool>& steps) {
  while (!frontier.empty()) {
    const int tensor = frontier.back();
    frontier.pop_back();
    if (tensors[tensor]) continue;
    tensors[tensor] = true;
    const int producer = graph.tensors[tensor].producer;
    if (producer == kEnsembleInput || steps[producer]) continue;
    steps[producer] = true;
    for (const Binding& input : graph.steps[producer].inputs) frontier.push_back(input.tensor);
  }
}

void AddToDepth(std::vector<std::vector<int>>& by_depth, int depth, int item, int& slot) {
  if (by_depth.size() <= static_cast<size_t>(depth)) by_depth.resize(depth + 1);
  slot = static_cast<int>(by_depth[depth].size());
  by_depth[depth].push_back(item);
}

void SetDownstreamSteps(Plan& plan) {
  plan.downstream_steps.resize(plan.graph->steps.size());
  for (size_t tensor = 0; tensor < plan.consumers.size(); ++tensor) {
    const int producer = plan.graph->tensors[tensor].producer;
    if (producer == kEnsembleInput) continue;
    std::vector<int>& downstream_steps = plan.downstream_steps[producer];
    downstream_steps.insert(downstream_steps.end(), plan.consumers[tensor].begin(),
                            plan.consumers[tensor].end());
    std::sort(downstream_steps.begin(), downstream_steps.end());
    downstream_steps.erase(std::unique(downstream_steps.begin(), downstream_steps.end()),
                           downstream_steps.end());
  }
}

void SetNeededBy(Plan& plan) {
  const Graph& graph = *plan.graph;
  plan.needed_by.resize(graph.steps.size() + 1);
  for (size_t step = 0; step < graph.steps.size(); ++step) {
    for (const Binding& input : graph.steps[step].inputs) {
      plan.needed_by[step].push_back(input.tensor);
    }
  }
  for (const int output : plan.outputs) {
    plan.needed_by[plan.sink].push_back(graph.outputs[output].tensor);
  }
  for (std::vector<int>& tensors : plan.needed_by) {
    std::sort(tensors.begin(), tensors.end());
    tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
  }
}

}  // namespace

Plan MakePlan(std::shared_ptr<const Graph> shared_graph, std::span<const int> outputs) {
  const Graph& graph = *shared_graph;
  Plan plan;
  plan.graph = std::move(shared_graph);
  plan.outputs = {outputs.begin(), outputs.end()};
  plan.sink = static_cast<int>(graph.steps.size());
  std::vector<int> requested;
  for (const int output : outputs) {
    requested.push_back(graph.outputs[output].tensor);
    plan.response_depth = std::max(plan.response_depth, graph.tensors[requested.back()].depth);
  }
  std::vector<bool> needs_tensor(graph.tensors.size());
  std::vector<bool> needs_step(graph.steps.size());
  MarkNeeded(graph, requested, needs_tensor, needs_step);

  plan.tensors_at.resize(plan.response_depth + 1);
  plan.steps_at.resize(plan.response_depth + 1);
  plan.slot_of_tensor.assign(graph.tensors.size(), -1);
  plan.slot_of_step.assign(graph.steps.size() + 1, -1);
  plan.consumers.resize(graph.tensors.size());
  for (int tensor = 0; tensor < static_cast<int>(graph.tensors.size()); ++tensor) {
    if (!needs_tensor[tensor]) continue;
    AddToDepth(plan.tensors_at, graph.tensors[tensor].depth, tensor, plan.slot_of_tensor[tensor]);
    for (const int step : graph.tensors[tensor].consumers) {
      if (needs_step[step]) plan.consumers[tensor].push_back(step);
    }
  }
  for (int step = 0; step < plan.sink; ++step) {
    if (!needs_step[step]) continue;
    AddToDepth(plan.steps_at, graph.steps[step].depth, step, plan.slot_of_step[step]);
  }
  SetDownstreamSteps(plan);
  SetNeededBy(plan);
  AddToDepth(plan.steps_at, plan.response_depth, plan.sink, plan.slot_of_step[plan.sink]);
  for (const int tensor : requested) {
    std::vector<int>& consumers = plan.consumers[tensor];
    if (consumers.empty() || consumers.back() != plan.sink) consumers.push_back(plan.sink);
  }
  return plan;
}

}  // namespace nereid::ensemble
