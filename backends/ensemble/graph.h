// The ensemble as a graph of tensors and steps, which refer to each other by index. Built once at
// load from a validated configuration; immutable afterwards. [any thread]
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/ensemble/ensemble_config.h"
#include "backends/ensemble/tensor.h"

namespace nereid::ensemble {

constexpr int kEnsembleInput = -1;  // the producer of a tensor that comes with the request

// An entry of a step's input_map or output_map.
struct Binding {
  std::string name;       // name of the model's tensor
  int tensor = 0;         // index into Graph::tensors
  bool optional = false;  // an optional input of the model
  int rank = 0;           // dimensions that the model expects, including the batch dimension
  bool batching = false;  // the first dimension is the batch
  // For a reader: whether to remove or to add the batch dimension of what the producer wrote.
  bool drops_batch = false;
  bool adds_batch = false;
};

struct Step {
  std::string model_name;
  std::string target = {};  // the name in calls
  int64_t model_version = -1;
  bool decoupled = false;
  int depth =
      0;  // number of decoupled steps upstream: the step runs once for each of their responses
  std::vector<Binding> inputs = {};
  std::vector<Binding> outputs = {};
};

struct GraphTensor {
  std::string name;
  int producer = kEnsembleInput;    // index into Graph::steps
  int depth = 0;                    // number of decoupled steps upstream, including the producer
  std::vector<int> consumers = {};  // indices into Graph::steps
};

struct Graph {
  std::string name;  // name of the ensemble
  std::vector<Step> steps = {};
  std::vector<GraphTensor> tensors = {};
  std::vector<Binding> inputs = {};  // the ensemble's own inputs, in the order of its configuration
  std::vector<Binding> outputs = {};  // the same for outputs
  bool decoupled = false;             // whether any step is decoupled

  // -1 if there is no such tensor.
  int FindInput(std::string_view name) const;
  int FindOutput(std::string_view name) const;
};

// `shape` as the reader expects it. Adds or removes a batch dimension of 1 if the producer and the
// reader differ in batching. Other differences remain, and the host reports them.
Shape ShapeFor(const Binding& reader, const Shape& shape);

// `config` has passed Validate() with the same `models`, one for each step.
Graph BuildGraph(const EnsembleConfig& config, std::span<const ModelSpec> models);

}  // namespace nereid::ensemble
