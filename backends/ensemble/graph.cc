#include "backends/ensemble/graph.h"

#include <algorithm>
#include <unordered_map>

namespace nereid::ensemble {
namespace {

int FindBinding(const std::vector<Binding>& bindings, std::string_view name) {
  const auto it = std::find_if(bindings.begin(), bindings.end(),
                               [&](const Binding& binding) { return binding.name == name; });
  return it == bindings.end() ? -1 : static_cast<int>(it - bindings.begin());
}

class GraphBuilder {
 public:
  explicit GraphBuilder(Graph& graph) : graph_(graph) {}

  int Intern(const std::string& name) {
    const auto [it, added] = index_.try_emplace(name, static_cast<int>(graph_.tensors.size()));
    if (added) graph_.tensors.push_back({.name = name});
    return it->second;
  }

  Binding Bind(const ModelSpec& model, const TensorSpec& spec, const std::string& tensor) {
    const bool batching = model.max_batch_size > 0;
    return {.name = spec.name,
            .tensor = Intern(tensor),
            .optional = spec.optional,
            .rank = static_cast<int>(spec.dims.size()) + (batching ? 1 : 0),
            .batching = batching};
  }

  void AddStep(const StepConfig& config, const ModelSpec& model) {
    const int index = static_cast<int>(graph_.steps.size());
    Step step{.model_name = config.model_name,
              .target = config.target,
              .model_version = config.model_version,
              .decoupled = model.decoupled};
    for (const auto& [input, tensor] : config.input_map) {
      step.inputs.push_back(Bind(model, *model.FindInput(input), tensor));
      std::vector<int>& consumers = graph_.tensors[step.inputs.back().tensor].consumers;
      if (consumers.empty() || consumers.back() != index) consumers.push_back(index);
    }
    for (const auto& [output, tensor] : config.output_map) {
      step.outputs.push_back(Bind(model, *model.FindOutput(output), tensor));
      graph_.tensors[step.outputs.back().tensor].producer = index;
    }
    graph_.steps.push_back(std::move(step));
  }

 private:
  Graph& graph_;
  std::unordered_map<std::string, int> index_;
};

// Relaxation; it ends after at most one round for each step, because the graph has no cycle.
void SetDepths(Graph& graph) {
  for (bool changed = true; changed;) {
    changed = false;
    for (Step& step : graph.steps) {
      for (const Binding& input : step.inputs) {
        step.depth = std::max(step.depth, graph.tensors[input.tensor].depth);
      }
      const int depth = step.depth + (step.decoupled ? 1 : 0);
      for (const Binding& output : step.outputs) {
        int& tensor_depth = graph.tensors[output.tensor].depth;
        changed |= tensor_depth != depth;
        tensor_depth = depth;
      }
    }
  }
}

// Marks where a tensor gains or loses the batch dimension, because only one of its sides batches.
void SetBatchChanges(Graph& graph) {
  std::vector<bool> batching(graph.tensors.size());
  const auto produce = [&](const Binding& binding) { batching[binding.tensor] = binding.batching; };
  const auto read = [&](Binding& binding) {
    binding.drops_batch = batching[binding.tensor] && !binding.batching;
    binding.adds_batch = !batching[binding.tensor] && binding.batching;
  };
  std::for_each(graph.inputs.begin(), graph.inputs.end(), produce);
  for (const Step& step : graph.steps) {
    std::for_each(step.outputs.begin(), step.outputs.end(), produce);
  }
  for (Step& step : graph.steps) std::for_each(step.inputs.begin(), step.inputs.end(), read);
  std::for_each(graph.outputs.begin(), graph.outputs.end(), read);
}

}  // namespace

Shape ShapeFor(const Binding& reader, const Shape& shape) {
  const auto rank = static_cast<size_t>(reader.rank);
  if (reader.adds_batch && shape.size() + 1 == rank) {
    Shape batched{1};
    batched.Append(shape.span());
    return batched;
  }
  if (reader.drops_batch && shape.size() == rank + 1 && shape.front() == 1) {
    return Shape(shape.span().subspan(1));
  }
  return shape;
}

int Graph::FindInput(std::string_view input) const {
  return FindBinding(inputs, input);
}
int Graph::FindOutput(std::string_view output) const {
  return FindBinding(outputs, output);
}

Graph BuildGraph(const EnsembleConfig& config, std::span<const ModelSpec> models) {
  Graph graph{.name = config.model.name};
  GraphBuilder builder(graph);
  for (const TensorSpec& input : config.model.inputs) {
    graph.inputs.push_back(builder.Bind(config.model, input, input.name));
  }
  for (size_t i = 0; i < config.steps.size(); ++i) builder.AddStep(config.steps[i], models[i]);
  for (const TensorSpec& output : config.model.outputs) {
    graph.outputs.push_back(builder.Bind(config.model, output, output.name));
  }
  for (const Step& step : graph.steps) graph.decoupled |= step.decoupled;
  SetDepths(graph);
  SetBatchChanges(graph);
  return graph;
}

}  // namespace nereid::ensemble
