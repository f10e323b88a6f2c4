// Small ensembles for tests. A suffix marks the kind of a name, so that a test shows its graph:
// "A?" is an optional tensor, "m*" a decoupled model. Every tensor is TYPE_INT32 [1].
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/ensemble/dataflow.h"
#include "backends/ensemble/validate.h"

namespace nereid::ensemble {

struct StepSketch {
  std::string model;
  std::vector<std::pair<std::string, std::string>> inputs;   // model's input -> ensemble tensor
  std::vector<std::pair<std::string, std::string>> outputs;  // model's output -> ensemble tensor
};

struct Sketch {
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<StepSketch> steps;
};

inline const Sketch kChain{
    {"A"}, {"C"}, {{"m0", {{"IN", "A"}}, {{"OUT", "B"}}}, {"m1", {{"IN", "B"}}, {{"OUT", "C"}}}}};

inline bool Strip(std::string& name, char mark) {
  if (name.empty() || name.back() != mark) return false;
  name.pop_back();
  return true;
}

inline TensorSpec SpecOf(std::string name) {
  TensorSpec spec;
  spec.optional = Strip(name, '?');
  spec.name = name;
  spec.data_type = "TYPE_INT32";
  spec.dims = {1};
  return spec;
}

struct Built {
  EnsembleConfig config;
  std::vector<ModelSpec> models;

  std::vector<ValidationIssue> Issues() const {
    const std::vector<Result<ModelSpec>> results(models.begin(), models.end());
    return Validate(config, results);
  }
  std::shared_ptr<const Graph> MakeGraph() const {
    return std::make_shared<const Graph>(BuildGraph(config, models));
  }
  // The plan for these outputs; for all if empty.
  Plan MakePlanFor(std::vector<std::string> names = {}) const {
    auto graph = MakeGraph();
    std::vector<int> outputs;
    for (size_t i = 0; names.empty() && i < graph->outputs.size(); ++i) {
      outputs.push_back(static_cast<int>(i));
    }
    for (const std::string& name : names) outputs.push_back(graph->FindOutput(name));
    return MakePlan(graph, outputs);
  }
};

inline Built Build(const Sketch& sketch) {
  Built built;
  built.config.model.name = "ens";
  for (const std::string& name : sketch.inputs) built.config.model.inputs.push_back(SpecOf(name));
  for (const std::string& name : sketch.outputs) built.config.model.outputs.push_back(SpecOf(name));
  for (const StepSketch& sketched : sketch.steps) {
    ModelSpec model;
    model.name = sketched.model;
    model.decoupled = Strip(model.name, '*');
    StepConfig step;
    step.model_name = model.name;
    for (const auto& [name, tensor] : sketched.inputs) {
      model.inputs.push_back(SpecOf(name));
      step.input_map.emplace_back(model.inputs.back().name, tensor);
    }
    for (const auto& [name, tensor] : sketched.outputs) {
      model.outputs.push_back(SpecOf(name));
      step.output_map.emplace_back(model.outputs.back().name, tensor);
    }
    built.config.steps.push_back(std::move(step));
    built.models.push_back(std::move(model));
  }
  return built;
}

// A tensor without bytes, identified by its shape.
inline TensorRef Value(int64_t value) {
  auto tensor = std::make_shared<Tensor>();
  tensor->shape = {value};
  return tensor;
}
// 0 for a null tensor.
inline int64_t ValueOf(const TensorRef& tensor) {
  return tensor ? tensor->shape.front() : 0;
}

inline std::vector<int64_t> ValuesOf(std::span<const TensorRef> tensors) {
  std::vector<int64_t> values;
  for (const TensorRef& tensor : tensors) values.push_back(ValueOf(tensor));
  return values;
}

}  // namespace nereid::ensemble
